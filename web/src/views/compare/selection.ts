// Which tokens a chart shows. The ranges come from the library; here they are only applied. Knows no pixel.
import type { Route } from "../../route";
import type { ChartKind, Charts, Pair } from "./payload";
import { logits } from "./payload";

export interface Choice {
  readonly number: number;
  readonly chart: ChartKind;
}

export function choiceOf(payload: Charts, { parameters }: Route): Choice {
  const number = Number(parameters["number"] ?? Number.NaN);
  const chart = parameters["chart"];
  const first = payload.numbers.includes(payload.asked.number) ? payload.asked.number : payload.numbers[0]!;
  return {
    number: payload.numbers.includes(number) ? number : first,
    chart: chart === "likelihoods" || chart === "differences" ? chart : payload.asked.chart,
  };
}

export interface Values {
  readonly a: Float32Array;
  readonly b: Float32Array;
  /** In double precision, as in the library: tokens must not change places by rounding. */
  readonly mean: Float64Array;
  readonly difference: Float64Array;
  /** All tokens, the highest mean first. */
  readonly order: Uint32Array;
}

const known = new WeakMap<Pair, Values>();

export function valuesOf(payload: Charts, pair: Pair): Values {
  let found = known.get(pair);
  if (!found) {
    const a = logits(payload, pair.a);
    const b = logits(payload, pair.b);
    const mean = Float64Array.from(a, (value, place) => (value + b[place]!) / 2);
    const order = Uint32Array.from(mean.keys()).sort((x, y) => mean[y]! - mean[x]! || x - y);
    found = { a, b, mean, difference: Float64Array.from(a, (value, place) => value - b[place]!), order };
    known.set(pair, found);
  }
  return found;
}

/** The tokens of one chart, the highest mean first. */
export function shown(payload: Charts, pair: Pair, { number, chart }: Choice): Uint32Array {
  const { a, b, order } = valuesOf(payload, pair);
  if (chart === "differences") return number ? order.subarray(0, number) : order;
  // The extent was made from these very float32 numbers, so the comparison is exact.
  const low = pair.extents[String(number)]![0];
  return order.filter((place) => a[place]! >= low && b[place]! >= low);
}

/** The tokens of a square: the `number` of highest mean in either pair. */
export function shownInSquare(payload: Charts, first: Pair, second: Pair, number: number): Uint32Array {
  if (!number) return valuesOf(payload, first).order;
  const heads = [first, second].map((pair) => valuesOf(payload, pair).order.subarray(0, number));
  return Uint32Array.from(new Set([...heads[0]!, ...heads[1]!]));
}

export function probability(payload: Charts, sentence: number, place: number): number {
  return Math.exp(logits(payload, sentence)[place]! - payload.sentences[sentence]!.total);
}

export function largest(values: Float64Array, places: Uint32Array): number {
  let most = 0;
  for (const place of places) most = Math.max(most, Math.abs(values[place]!));
  return most || 1;
}
