// Which tokens the charts of a comparison show, and the charts themselves: two sentences, a grid of them, and
// differences against differences. The ranges come from the library.
import { floats } from "../../binary";
import { integerParameter, type Route } from "../../route";
import type { ChartsView, CompletionsView, PairView, SweepView } from "../../types";
import type { Payload } from "../../view";
import type { Scatter } from "./charts";

export interface Selection {
  readonly number: number;
  readonly chart: ChartKind;
}

export function selectionOf(payload: Charts, { parameters }: Route): Selection {
  const number = Number(parameters["number"] ?? Number.NaN);
  const chart = parameters["chart"];
  const initial = payload.numbers.includes(payload.number) ? payload.number : payload.numbers[0]!;
  return {
    number: payload.numbers.includes(number) ? number : initial,
    chart: chart === "likelihoods" || chart === "differences" ? chart : payload.chart,
  };
}

export interface PairValues {
  readonly a: Float32Array;
  readonly b: Float32Array;
  /** In double precision, as in the library: rounding must not change the order of tokens. */
  readonly mean: Float64Array;
  readonly difference: Float64Array;
  /** All tokens in descending order of their mean. */
  readonly order: Uint32Array;
}

const cache = new WeakMap<PairView, PairValues>();

export function valuesOf(payload: Charts, pair: PairView): PairValues {
  const known = cache.get(pair);
  if (known) return known;
  const [a, b] = [sentenceValues(payload, pair.a), sentenceValues(payload, pair.b)];
  const mean = Float64Array.from(a, (value, token) => (value + b[token]!) / 2);
  const order = Uint32Array.from(mean.keys()).sort((x, y) => mean[y]! - mean[x]! || x - y);
  const values = { a, b, mean, difference: Float64Array.from(a, (value, token) => value - b[token]!), order };
  cache.set(pair, values);
  return values;
}

/** The tokens of a chart in descending order of their mean. */
export function selectTokens(payload: Charts, pair: PairView, { number, chart }: Selection): Uint32Array {
  const { a, b, order } = valuesOf(payload, pair);
  if (chart === "differences") return number ? order.subarray(0, number) : order;
  // The extent was computed from these float32 numbers, so the comparison is exact.
  const low = pair.extents[String(number)]![0];
  return order.filter((token) => a[token]! >= low && b[token]! >= low);
}

function largest(values: Float64Array, tokens: Uint32Array): number {
  let most = 0;
  for (const token of tokens) most = Math.max(most, Math.abs(values[token]!));
  return most || 1;
}

type Tint = (token: number) => number;

/** The color of each token: its difference in one pair. */
export function tintOf(payload: Charts, pair: PairView, selection: Selection): Tint {
  const { difference } = valuesOf(payload, pair);
  const full = payload.palette * largest(difference, selectTokens(payload, pair, selection));
  return (token) => difference[token]! / full;
}

const DOTS: Readonly<Record<number, number>> = { 30: 5, 200: 4, 1000: 4 };

export function pairChart(payload: Charts, pair: PairView, selection: Selection, tint: Tint): Scatter {
  const { a, b, mean, difference } = valuesOf(payload, pair);
  const tokens = selectTokens(payload, pair, selection);
  const inGrid = payload.kind === "grid";
  const common = {
    labels: payload.tokens,
    tokens,
    tint,
    axes: pair.axes[selection.chart]!,
    dot: DOTS[selection.number] ?? 3,
  };
  if (selection.chart === "likelihoods") {
    const [low, high] = pair.extents[String(selection.number)]!;
    const margin = (high - low) * 0.02 || 1;
    const range = [low - margin, high + margin] as const;
    const [across, up] = inGrid ? [a, b] : [b, a];
    const sides = inGrid ? ({ right: "a", up: "b" } as const) : ({ right: "b", up: "a" } as const);
    return {
      ...common,
      x: (token) => across[token]!,
      y: (token) => up[token]!,
      across: range,
      up: range,
      sides,
      diagonal: true,
    };
  }
  const most = largest(difference, tokens) * 1.04;
  const sign = inGrid ? -1 : 1;
  const ends = [mean[tokens[tokens.length - 1]!]!, mean[tokens[0]!]!] as const;
  const margin = (ends[1] - ends[0]) * 0.03 || 1;
  return {
    ...common,
    x: (token) => mean[token]!,
    y: (token) => sign * difference[token]!,
    across: [ends[0] - margin, ends[1] + margin],
    up: [-most, most],
    sides: inGrid ? { up: "b", down: "a" } : { up: "a", down: "b" },
    diagonal: false,
  };
}

export function squareChart(
  payload: Charts,
  index: number,
  selection: Selection,
  tint: Tint,
  coloredBy: number,
): Scatter {
  const square = payload.squares[index]!;
  const [first, second] = [payload.pairs[square.across]!, payload.pairs[square.up]!];
  const [x, y] = [valuesOf(payload, first).difference, valuesOf(payload, second).difference];
  // in either pair
  const best = [first, second].flatMap((pair) => [...valuesOf(payload, pair).order.subarray(0, selection.number)]);
  const tokens = selection.number ? Uint32Array.from(new Set(best)) : valuesOf(payload, first).order;
  const most = Math.max(largest(x, tokens), largest(y, tokens)) * 1.04;
  return {
    labels: payload.tokens,
    tokens,
    tint,
    x: (token) => -x[token]!,
    y: (token) => -y[token]!,
    across: [-most, most],
    up: [-most, most],
    axes: square.axes,
    sides: {
      ...(coloredBy === square.across && ({ left: "a", right: "b" } as const)),
      ...(coloredBy === square.up && ({ down: "a", up: "b" } as const)),
    },
    diagonal: true,
    dot: 3,
  };
}

/** A chart of a grid: the index of a pair, or of a square. */
export type Part = { readonly pair: number } | { readonly square: number };

/**
 * The selected part of a grid: pairs and squares of two rows and two columns in page order; and the pair that gives the
 * colors.
 */
export function gridParts(
  payload: Charts,
  { parameters }: Route,
): { readonly parts: readonly Part[]; readonly coloredBy: number } {
  const two = (name: string, count: number): [number, number] => {
    const first = integerParameter(parameters, `${name}1`, count);
    const second = integerParameter(parameters, `${name}2`, count, first ? 0 : 1);
    return first < second ? [first, second] : first > second ? [second, first] : [0, Math.min(1, count - 1)];
  };
  const [rows, columns] = [two("row", payload.rows.length), two("column", payload.columns.length)];
  const cell = (row: number, column: number) => row * payload.columns.length + column;
  const findPair = (a: number, b: number) => payload.pairs.findIndex((pair) => pair.a === a && pair.b === b);
  const findSquare = (across: number, up: number) =>
    payload.squares.findIndex((one) => one.across === across && one.up === up);
  let pairs: number[];
  let parts: Part[];
  if (payload.rows.length < 2) {
    pairs = [findPair(cell(0, columns[0]), cell(0, columns[1]))];
    parts = [{ pair: pairs[0]! }];
  } else {
    const [p, q] = rows.map((row) => findPair(cell(row, columns[0]), cell(row, columns[1]))) as [number, number];
    const [r, s] = columns.map((column) => findPair(cell(rows[0], column), cell(rows[1], column))) as [number, number];
    pairs = [p, q, r, s];
    parts = [
      { pair: p },
      { pair: q },
      { square: findSquare(p, q) },
      { pair: r },
      { pair: s },
      { square: findSquare(r, s) },
    ];
  }
  const fallback = pairs[1] ?? pairs[0]!;
  const selected = integerParameter(parameters, "color", payload.pairs.length, fallback);
  return { parts, coloredBy: pairs.includes(selected) ? selected : fallback };
}

export type ChartKind = ChartsView["chart"];
export type Charts = ChartsView & Payload;
export type Sweep = SweepView & Payload;
export type Sentence = CompletionsView & Payload;
export type Comparison = Charts | Sweep | Sentence;

/** Log-probabilities or logits, as the payload says. */
export function sentenceValues(payload: Charts, sentence: number): Float32Array {
  return floats(payload.sentences[sentence]!.values);
}

export function probability(payload: Charts, sentence: number, token: number): number {
  return Math.exp(sentenceValues(payload, sentence)[token]! - payload.sentences[sentence]!.total);
}
