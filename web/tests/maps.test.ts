// Attention maps: what is computed from a payload, and which options a route selects.
import { expect, test } from "vitest";
import type { MapView } from "../src/types";
import {
  AttentionMaps,
  type AttentionPayload,
  type MapOptions,
  selectionOf,
  softmax,
} from "../src/views/attention/maps";

const base64 = (values: ArrayLike<number>) => btoa(String.fromCharCode(...Uint8Array.from(values)));
const half = (value: 0 | 1 | 2) => ({ 0: [0, 0], 1: [0, 0x3c], 2: [0, 0x40] })[value];
const halves = (values: readonly (0 | 1 | 2)[]) => base64(values.flatMap(half));

const ALL: MapOptions = { source: "heads", level: "piece", pair: "all", hidesSpecial: false };

/** Two heads of one layer over [CLS] a ##b c: the first attends to itself, the second to the first token. */
function payload(changes: Partial<MapView> = {}): MapView {
  const self = [255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255];
  const first = [255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0];
  const names = ["[CLS]", "a", "##b", "c"];
  return {
    kind: "encoder",
    layers: 1,
    heads: 2,
    rows: names,
    columns: names,
    row_words: [-1, 0, 0, 1],
    column_words: [-1, 0, 0, 1],
    row_segments: [0, 0, 0, 1],
    column_segments: [0, 0, 0, 1],
    row_special: [true, false, false, false],
    column_special: [true, false, false, false],
    weights: base64([...self, ...first]),
    q: null,
    q_step: null,
    k: null,
    k_step: null,
    scale: null,
    bias: null,
    causal: false,
    windows: [null],
    rollout: null,
    rollout_largest: [],
    flow: null,
    flow_largest: 1,
    ...changes,
  } as MapView;
}

const rounded = (values: Float32Array) => [...values].map((value) => Math.round(100 * value) / 100);

test("the weights of a head are those of the payload", () => {
  const maps = new AttentionMaps(payload());
  expect(rounded(maps.weights(1, 0, ALL))).toEqual([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
  expect(maps.weights(1, 0, ALL)).toBe(maps.weights(1, 0, ALL));
});

test("mean and maximum are over the heads", () => {
  const maps = new AttentionMaps(payload());
  expect(rounded(maps.weights(1, 0, { ...ALL, source: "mean" })).slice(4, 8)).toEqual([0.5, 0.5, 0, 0]);
  expect(rounded(maps.weights(1, 0, { ...ALL, source: "max" })).slice(4, 8)).toEqual([1, 1, 0, 0]);
});

test("a word attends as the mean of its pieces and receives their sum", () => {
  const maps = new AttentionMaps(payload());
  const options = { ...ALL, level: "word" } as const;
  expect(maps.rows(options).labels).toEqual(["[CLS]", "ab", "c"]);
  expect(rounded(maps.weights(1, 0, options))).toEqual([1, 0, 0, 0, 1, 0, 0, 0, 1]);
  expect(rounded(maps.weights(1, 1, options))).toEqual([1, 0, 0, 1, 0, 0, 1, 0, 0]);
});

test("special tokens are left out, and other weights stay as they are", () => {
  const maps = new AttentionMaps(payload());
  const options = { ...ALL, hidesSpecial: true };
  expect(maps.columns(options).labels).toEqual(["a", "##b", "c"]);
  expect(rounded(maps.weights(1, 1, options))).toEqual(Array(9).fill(0));
});

test("segments select rows and columns", () => {
  const maps = new AttentionMaps(payload());
  const options = { ...ALL, pair: "ba" } as const;
  expect([maps.rows(options).labels, maps.columns(options).labels]).toEqual([["c"], ["[CLS]", "a", "##b"]]);
  expect(rounded(maps.weights(1, 1, options))).toEqual([1, 0, 0]);
});

test("maps are computed from queries and keys as scale and mask say", () => {
  const q = halves([1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1]);
  const k = halves([2, 0, 0, 0, 1, 1, 0, 2, 2, 0, 0, 0, 1, 1, 0, 2]);
  const vectors = { weights: null, q, k, scale: 0.5 };
  const maps = new AttentionMaps(payload(vectors));
  expect(maps.hasVectors && maps.headWidth).toBe(2);
  expect([...maps.scores(1, 0, 0)]).toEqual([1, 0, 0.5, 0]);
  expect([...maps.weights(1, 0, ALL).slice(0, 4)]).toEqual([...softmax(Float32Array.of(1, 0, 0.5, 0))]);
  const causal = new AttentionMaps(payload({ ...vectors, causal: true }));
  expect([...causal.scores(1, 0, 1)]).toEqual([0, 0, -Infinity, -Infinity]);
  expect(rounded(causal.weights(1, 0, ALL)).slice(0, 4)).toEqual([1, 0, 0, 0]);
  const windowed = new AttentionMaps(payload({ ...vectors, windows: [1] }));
  expect([...windowed.scores(1, 0, 0)]).toEqual([1, 0, -Infinity, -Infinity]);
});

test("colors below the threshold are empty, and those of rollout span its weights", () => {
  const maps = new AttentionMaps(
    payload({ rollout: base64([...Array(12).fill(51), 255, 51, 51, 51]), rollout_largest: [0.5] }),
  );
  expect(maps.range(1, 0, ALL)).toEqual([0, 1]);
  const options = { ...ALL, source: "rollout" } as const;
  expect(maps.range(1, 0, options).map((value) => Math.round(10 * value))).toEqual([1, 5]);
  expect(rounded(maps.shades(1, 0, options, 0.2)).slice(11)).toEqual([0, 1, 0, 0, 0]);
});

test("a route selects what there is, and falls back where there is nothing", () => {
  const view = { maps: [payload()], image: null, grid: null } as unknown as AttentionPayload;
  const select = (parameters: Record<string, string>) => selectionOf(view, { view: "attention", parameters });
  expect(select({})).toMatchObject({
    source: "heads",
    level: "piece",
    pair: "all",
    layer: 1,
    heads: [0],
    mode: "lines",
  });
  expect(select({ heads: "1,0,7,x" }).heads).toEqual([0, 1]);
  expect(select({ heads: "all" }).heads).toEqual([0, 1]);
  expect(select({ source: "flow", mode: "neuron", layer: "9", min: "2" })).toMatchObject({
    source: "heads",
    mode: "lines",
    layer: 1,
    threshold: 0,
  });
  expect(select({ lock: "c2", level: "word" }).locked).toEqual({ side: "column", index: 1 });
  expect(select({ lock: "r-1" }).locked).toEqual({ side: "row", index: 3 });
  expect(select({ token: "C" }).locked).toEqual({ side: "row", index: 3 });
});
