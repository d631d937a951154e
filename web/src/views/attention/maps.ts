// Attention maps as numbers: of one head, the mean or maximum over heads, rolled out over layers, or as flow; by
// subwords or words; with or without special tokens; of all tokens or from one segment to another. And what the route
// selects.
import { bytes, halves } from "../../binary";
import { integerParameter, layerParameter, type Route, setParameters } from "../../route";
import type { AttentionView, MapView } from "../../types";
import type { Payload } from "../../view";

export type Source = "heads" | "mean" | "max" | "rollout" | "flow";
export type Level = "piece" | "word";
/** From segment A or B to segment A or B. */
export type Segments = "all" | "aa" | "ab" | "ba" | "bb";

export interface MapOptions {
  readonly source: Source;
  readonly level: Level;
  readonly pair: Segments;
  /** Whether special tokens such as [CLS] are left out. The other weights stay as they are. */
  readonly hidesSpecial: boolean;
}

/** Rows or columns of a map: a label for each, and the tokens it consists of. */
export interface Axis {
  readonly labels: readonly string[];
  readonly tokens: readonly (readonly number[])[];
}

const CACHE_SIZE = 40; // maps

export class AttentionMaps {
  readonly layers: number;
  readonly heads: number;
  /** Whether there are two segments. */
  readonly paired: boolean;
  /** Whether a word has several subwords. */
  readonly hasWords: boolean;
  readonly headWidth: number;
  private readonly headWeights: Uint8Array | null;
  private readonly q: VectorArray | null;
  private readonly k: VectorArray | null;
  private readonly bias: Float32Array | null;
  private readonly rollout: Uint8Array | null;
  private readonly flow: Uint8Array | null;
  private readonly cache = new Map<string, Float32Array>();
  private readonly axes = new Map<string, Axis>();

  constructor(readonly raw: MapView) {
    this.layers = raw.layers;
    this.heads = raw.heads;
    this.headWeights = raw.weights === null ? null : bytes(raw.weights);
    const maps = raw.layers * raw.heads;
    this.q = raw.q === null ? null : new VectorArray(raw.q, raw.q_step, maps * raw.rows.length);
    this.k = raw.k === null ? null : new VectorArray(raw.k, raw.k_step, maps * raw.columns.length);
    this.bias = raw.bias ? halves(bytes(raw.bias)) : null;
    this.rollout = raw.rollout === null ? null : bytes(raw.rollout);
    this.flow = raw.flow === null ? null : bytes(raw.flow);
    this.headWidth = this.q?.width ?? 0;
    this.paired = new Set([...raw.row_segments, ...raw.column_segments]).size > 1;
    this.hasWords = hasRepeats(raw.row_words) || hasRepeats(raw.column_words);
  }

  get sources(): readonly Source[] {
    return [
      "heads",
      ...(this.heads > 1 ? (["mean", "max"] as const) : []),
      ...(this.rollout ? (["rollout"] as const) : []),
      ...(this.flow ? (["flow"] as const) : []),
    ];
  }

  /** Whether queries and keys are available. */
  get hasVectors(): boolean {
    return this.q !== null && this.k !== null && this.raw.scale !== null;
  }

  /** Whether there are special tokens to leave out, and others that remain. */
  get hasSpecial(): boolean {
    const some = (marks: readonly boolean[]) => marks.includes(true) && marks.includes(false);
    return some(this.raw.row_special) || some(this.raw.column_special);
  }

  rows({ level, pair, hidesSpecial }: MapOptions): Axis {
    const { rows, row_words, row_segments, row_special } = this.raw;
    return this.axis(`rows ${level} ${pair[0]} ${hidesSpecial}`, () =>
      makeAxis(rows, row_words, row_segments, level, segmentOf(pair, 0), hidesSpecial ? row_special : []),
    );
  }

  columns({ level, pair, hidesSpecial }: MapOptions): Axis {
    const { columns, column_words, column_segments, column_special } = this.raw;
    return this.axis(`columns ${level} ${pair[1]} ${hidesSpecial}`, () =>
      makeAxis(columns, column_words, column_segments, level, segmentOf(pair, 1), hidesSpecial ? column_special : []),
    );
  }

  /** Returns the same object for the same options, so that components need not render again. */
  private axis(name: string, make: () => Axis): Axis {
    const axis = this.axes.get(name) ?? make();
    this.axes.set(name, axis);
    return axis;
  }

  /** Index of a map in the arrays: layers count from 1, heads from 0. */
  private index(layer: number, head: number): number {
    return (layer - 1) * this.heads + head;
  }

  /**
   * The weights of a layer and head in row-major order. A word attends as the mean of its pieces and receives their
   * sum.
   */
  weights(layer: number, head: number, options: MapOptions): Float32Array {
    const { source, level, pair, hidesSpecial } = options;
    if (level === "piece" && pair === "all" && !hidesSpecial) return this.fullMap(layer, head, source);
    return this.cached(`${source} ${layer} ${head} ${level} ${pair} ${hidesSpecial}`, () => {
      const map = this.fullMap(layer, head, source);
      const rows = this.rows(options).tokens;
      const columns = this.columns(options).tokens;
      const result = new Float32Array(rows.length * columns.length);
      const across = this.raw.columns.length;
      rows.forEach((row, i) => {
        columns.forEach((column, j) => {
          let sum = 0;
          for (const t of row) for (const s of column) sum += map[t * across + s]!;
          result[i * columns.length + j] = Math.min(1, sum / row.length);
        });
      });
      return result;
    });
  }

  /**
   * The weights that get no color and full color. A head's are comparable with every other's: 0 and 1. The others are
   * small: color ends at the largest weight shown, and for rollout and flow, in which every token has a share, begins
   * at the smallest.
   */
  range(layer: number, head: number, options: MapOptions): readonly [number, number] {
    if (options.source === "heads") return [0, 1];
    let [low, high] = [Infinity, 0];
    for (const weight of this.weights(layer, head, options))
      [low, high] = [Math.min(low, weight), Math.max(high, weight)];
    return [options.source === "rollout" || options.source === "flow" ? Math.min(low, high) : 0, high || 1];
  }

  /** The colors of a map, from 0 to 1; weights below `threshold` have none. */
  shades(layer: number, head: number, options: MapOptions, threshold: number): Float32Array {
    const weights = this.weights(layer, head, options);
    return this.shaded(weights, this.range(layer, head, options), threshold);
  }

  private shaded(weights: Float32Array, [low, high]: readonly [number, number], threshold: number): Float32Array {
    if (low === 0 && high === 1 && threshold === 0) return weights;
    const width = high - low || 1;
    return weights.map((weight) => (weight < threshold ? 0 : (weight - low) / width));
  }

  /** The colors of a thumbnail: if it has more than `rows` rows, only so many, evenly spaced. */
  thumbnail(layer: number, head: number, options: MapOptions, rows: number, threshold: number): Float32Array {
    const { source, level, pair, hidesSpecial } = options;
    const [count, across] = [this.raw.rows.length, this.raw.columns.length];
    const plain = source === "heads" && level === "piece" && pair === "all" && !hidesSpecial;
    if (!plain || count <= rows) return this.shades(layer, head, options, threshold);
    const keys = this.headWeights ? null : new Float64Array(this.keys(layer, head));
    const result = new Float32Array(rows * across);
    for (let i = 0; i < rows; i++) {
      const row = Math.floor(((i + 0.5) * count) / rows);
      const first = (this.index(layer, head) * count + row) * across;
      result.set(
        keys ? softmax(this.scores(layer, head, row, keys)) : unquantize(this.headWeights!, first, across),
        i * across,
      );
    }
    return this.shaded(result, [0, 1], threshold);
  }

  query(layer: number, head: number, row: number): Float32Array {
    const index = this.index(layer, head) * this.raw.rows.length + row;
    return this.q!.slice(index, index + 1);
  }

  /** All keys of a head, concatenated. */
  keys(layer: number, head: number): Float32Array {
    const count = this.raw.columns.length;
    const first = this.index(layer, head) * count;
    return this.k!.slice(first, first + count);
  }

  /**
   * The scores of a row before the softmax; -Infinity where the mask hides a column. Keys are in float64: each meets
   * every query.
   */
  scores(layer: number, head: number, row: number, keys = new Float64Array(this.keys(layer, head))): Float32Array {
    const { columns, rows, causal } = this.raw;
    const query = new Float64Array(this.query(layer, head, row));
    const scale = this.raw.scale ?? 1;
    const count = columns.length;
    const last = causal ? Math.min(count - 1, row) : count - 1;
    const result = dotProducts(query, keys, this.headWidth, last + 1, count);
    const window = this.raw.windows[layer - 1] ?? count;
    for (let column = 0; column <= last; column++) {
      if (Math.abs(row - column) > window) {
        result[column] = -Infinity;
        continue;
      }
      const bias = this.bias ? this.bias[head * (rows.length + count - 1) + column - row + rows.length - 1]! : 0;
      result[column] = result[column]! * scale + bias;
    }
    return result;
  }

  private fullMap(layer: number, head: number, source: Source): Float32Array {
    const size = this.raw.rows.length * this.raw.columns.length;
    if (source === "flow" && this.flow)
      return this.cached("flow", () => unquantize(this.flow!, 0, size, this.raw.flow_largest));
    if (source === "rollout" && this.rollout) {
      return this.cached(`rollout ${layer}`, () =>
        unquantize(this.rollout!, (layer - 1) * size, size, this.raw.rollout_largest[layer - 1]),
      );
    }
    if (source === "mean" || source === "max")
      return this.cached(`${source} ${layer}`, () => this.overHeads(layer, source));
    return this.cached(`${layer} ${head}`, () =>
      this.headWeights
        ? unquantize(this.headWeights, this.index(layer, head) * size, size)
        : this.computeMap(layer, head),
    );
  }

  private overHeads(layer: number, source: "mean" | "max"): Float32Array {
    const result = new Float32Array(this.raw.rows.length * this.raw.columns.length);
    for (let head = 0; head < this.heads; head++) {
      const map = this.fullMap(layer, head, "heads");
      for (let i = 0; i < result.length; i++)
        result[i] = source === "mean" ? result[i]! + map[i]! / this.heads : Math.max(result[i]!, map[i]!);
    }
    return result;
  }

  private computeMap(layer: number, head: number): Float32Array {
    const across = this.raw.columns.length;
    const result = new Float32Array(this.raw.rows.length * across);
    const keys = new Float64Array(this.keys(layer, head));
    for (let row = 0; row < this.raw.rows.length; row++)
      result.set(softmax(this.scores(layer, head, row, keys)), row * across);
    return result;
  }

  /** Least recently used cache. */
  private cached(name: string, make: () => Float32Array): Float32Array {
    const result = this.cache.get(name) ?? make();
    this.cache.delete(name);
    this.cache.set(name, result);
    if (this.cache.size > CACHE_SIZE) this.cache.delete(this.cache.keys().next().value!);
    return result;
  }
}

/** Dot products of a query with the first `visible` keys; -Infinity for the others, up to `count`. */
function dotProducts(
  query: Float64Array,
  keys: Float64Array,
  width: number,
  visible: number,
  count: number,
): Float32Array {
  const result = new Float32Array(count).fill(-Infinity, visible);
  let column = 0;
  // Four keys at once: each number of the query is read once for them, and the sums are independent.
  for (; column + 3 < visible; column += 4) {
    const a = column * width;
    const [b, c, e] = [a + width, a + 2 * width, a + 3 * width];
    let one = 0;
    let two = 0;
    let three = 0;
    let four = 0;
    for (let d = 0; d < width; d++) {
      const x = query[d]!;
      one += x * keys[a + d]!;
      two += x * keys[b + d]!;
      three += x * keys[c + d]!;
      four += x * keys[e + d]!;
    }
    result[column] = one;
    result[column + 1] = two;
    result[column + 2] = three;
    result[column + 3] = four;
  }
  for (; column < visible; column++) {
    let sum = 0;
    for (let d = 0; d < width; d++) sum += query[d]! * keys[column * width + d]!;
    result[column] = sum;
  }
  return result;
}

export function softmax(scores: Float32Array): Float32Array {
  // Plain loops: a long text needs a million of these.
  const count = scores.length;
  const result = new Float32Array(count);
  let largest = -Infinity;
  for (let i = 0; i < count; i++) if (scores[i]! > largest) largest = scores[i]!;
  let sum = 0;
  for (let i = 0; i < count; i++) sum += result[i] = Math.exp(scores[i]! - largest);
  for (let i = 0; i < count; i++) result[i] = result[i]! / sum;
  return result;
}

function unquantize(values: Uint8Array, start: number, size: number, largest = 1): Float32Array {
  const result = new Float32Array(size);
  for (let i = 0; i < size; i++) result[i] = (values[start + i]! * largest) / 255;
  return result;
}

function segmentOf(pair: Segments, end: 0 | 1): 0 | 1 | null {
  return pair === "all" ? null : pair[end] === "a" ? 0 : 1;
}

function hasRepeats(words: readonly number[]): boolean {
  return words.some((word, i) => i > 0 && word === words[i - 1]);
}

/** Groups the tokens of a segment (null: all) by words if `level` says so; without those that are `hidden`. */
function makeAxis(
  names: readonly string[],
  words: readonly number[],
  segments: readonly number[],
  level: Level,
  segment: 0 | 1 | null,
  hidden: readonly boolean[],
): Axis {
  const tokens: number[][] = [];
  names.forEach((_, i) => {
    if ((segment !== null && segments[i] !== segment) || hidden[i]) return;
    const last = tokens.at(-1)?.at(-1);
    if (level === "word" && last === i - 1 && words[i] === words[last] && segments[i] === segments[last])
      tokens.at(-1)!.push(i);
    else tokens.push([i]);
  });
  return {
    tokens,
    labels: tokens.map((group) => group.map((i, n) => (n ? names[i]!.replace(/^##(?=.)/s, "") : names[i]!)).join("")),
  };
}

export type AttentionPayload = AttentionView & Payload;

/** Vectors [N,D] as float16, or as signed bytes with a step for each vector; decoded on access. */
export class VectorArray {
  private readonly raw: Uint8Array;
  private readonly steps: Float32Array | null;
  readonly width: number;

  constructor(text: string, steps: string | null, count: number) {
    this.raw = bytes(text);
    this.steps = steps ? halves(bytes(steps)) : null;
    this.width = this.raw.length / (steps ? 1 : 2) / count;
  }

  /** The vectors from `first` to `last` (exclusive), concatenated. */
  slice(first: number, last: number): Float32Array {
    const { raw, steps, width } = this;
    if (!steps) return halves(raw.subarray(2 * first * width, 2 * last * width));
    const result = new Float32Array((last - first) * width);
    for (let vector = first, at = 0; vector < last; vector++) {
      const step = steps[vector]!;
      for (let d = 0; d < width; d++, at++) result[at] = ((raw[vector * width + d]! << 24) >> 24) * step;
    }
    return result;
  }
}

export type Mode = "lines" | "grid" | "neuron" | "image";

export interface Focus {
  readonly side: "row" | "column";
  /** Index among the tokens shown. */
  readonly index: number;
}

export interface Selection extends MapOptions {
  readonly maps: AttentionMaps;
  readonly mode: Mode;
  readonly map: number;
  readonly layer: number;
  /** At least one head. */
  readonly heads: readonly number[];
  readonly rows: Axis;
  readonly columns: Axis;
  readonly locked: Focus | null;
  /** Smaller weights are not drawn. */
  readonly threshold: number;
  /** Whether the tokens of the lines run across the page instead of down. */
  readonly across: boolean;
  /** The image in image mode. */
  readonly image: PatchImage | null;
}

export interface PatchImage {
  readonly source: string;
  /** Rows and columns of patches. */
  readonly grid: readonly [number, number];
}

const decoded = new WeakMap<object, AttentionMaps>();

export function selectionOf(payload: AttentionPayload, { parameters }: Route): Selection {
  const map = integerParameter(parameters, "map", payload.maps.length);
  const raw = payload.maps[map]!;
  const maps = decoded.get(raw) ?? new AttentionMaps(raw);
  decoded.set(raw, maps);
  const mode = oneOf<Mode>(parameters["mode"], availableModes(payload, maps));
  const source = mode === "neuron" ? "heads" : oneOf<Source>(parameters["source"], maps.sources);
  const level = mode === "neuron" || !maps.hasWords ? "piece" : oneOf<Level>(parameters["level"], ["piece", "word"]);
  const pair = maps.paired ? oneOf<Segments>(parameters["pair"], ["all", "aa", "ab", "ba", "bb"]) : "all";
  const hidesSpecial = parameters["special"] === "hide" && maps.hasSpecial && mode !== "image";
  const options = { source, level, pair, hidesSpecial };
  const [rows, columns] = [maps.rows(options), maps.columns(options)];
  const layer = layerParameter(parameters, maps.layers);
  const heads = source === "heads" ? parseHeads(parameters["heads"], maps.heads) : [0];
  const locked = parseLock(parameters["lock"], rows, columns) ?? findToken(parameters["token"], rows);
  return {
    ...options,
    maps,
    mode,
    map,
    layer,
    heads,
    rows,
    columns,
    locked,
    threshold: thresholdOf(parameters["min"]),
    across: parameters["layout"] === "across",
    image: mode === "image" ? imageOf(payload) : null,
  };
}

function thresholdOf(text: string | undefined): number {
  const value = Number(text ?? 0);
  return value > 0 && value <= 1 ? value : 0;
}

function imageOf({ image, grid, maps }: AttentionPayload): PatchImage | null {
  const side = Math.floor(Math.sqrt(maps[0]!.columns.length));
  return image ? { source: image, grid: grid ?? [side, side] } : null;
}

export function availableModes(payload: AttentionPayload, maps: AttentionMaps): readonly Mode[] {
  return [
    ...(payload.image ? (["image"] as const) : []),
    "lines",
    "grid",
    ...(maps.hasVectors ? (["neuron"] as const) : []),
  ];
}

/** Locked tokens are stored by their first piece, so that a change of level or segments does not move the lock. */
export function setLock(focus: Focus | null, selection: Selection): void {
  const token = focus && selection[focus.side === "row" ? "rows" : "columns"].tokens[focus.index]?.[0];
  setParameters({
    lock: focus && token !== null && token !== undefined ? `${focus.side === "row" ? "r" : "c"}${token}` : "",
    token: "",
  });
}

/** The row of a word that another view or an example names; the first, if it occurs several times. */
function findToken(word: string | undefined, rows: Axis): Focus | null {
  const index = word ? rows.labels.findIndex((label) => label.trim().toLowerCase() === word.toLowerCase()) : -1;
  return index < 0 ? null : { side: "row", index };
}

function parseLock(text: string | undefined, rows: Axis, columns: Axis): Focus | null {
  const number = Number.parseInt(text?.slice(1) ?? "", 10);
  if (!text || Number.isNaN(number)) return null;
  const side = text[0] === "c" ? "column" : "row";
  // A negative number counts from the last token.
  const token = number < 0 ? number + 1 + Math.max(-1, ...(side === "row" ? rows : columns).tokens.flat()) : number;
  const index = (side === "row" ? rows : columns).tokens.findIndex((group) => group.includes(token));
  return index < 0 ? null : { side, index };
}

function parseHeads(text: string | undefined, count: number): readonly number[] {
  if (text === "all") return Array.from({ length: count }, (_, head) => head);
  const heads = (text ?? "0")
    .split(",")
    .map(Number)
    .filter((head) => Number.isInteger(head) && head >= 0 && head < count);
  return heads.length ? [...new Set(heads)].sort((a, b) => a - b) : [0];
}

function oneOf<T extends string>(value: string | undefined, choices: readonly T[]): T {
  return choices.find((choice) => choice === value) ?? choices[0]!;
}
