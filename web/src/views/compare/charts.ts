// The scatters of a comparison: two sentences, a grid's pairs, and difference against difference. Knows no pixel.
import type { Charts, Pair } from "./payload";
import type { Scatter } from "./scatter";
import type { Choice } from "./selection";
import { largest, shown, shownInSquare, valuesOf } from "./selection";

const DOTS: Readonly<Record<number, number>> = { 30: 5, 200: 4, 1000: 4 };

/** The colour of every token: its difference in one pair. */
export function tints(payload: Charts, pair: Pair, choice: Choice): (place: number) => number {
  const { difference } = valuesOf(payload, pair);
  const full = payload.palette * largest(difference, shown(payload, pair, choice));
  return (place) => difference[place]! / full;
}

export function pairChart(payload: Charts, pair: Pair, choice: Choice, tint: (place: number) => number): Scatter {
  const { a, b, mean, difference } = valuesOf(payload, pair);
  const places = shown(payload, pair, choice);
  const cells = payload.kind === "grid";
  const rest = { names: payload.tokens, places, tint, axes: pair.axes[choice.chart], dot: DOTS[choice.number] ?? 3 };
  if (choice.chart === "likelihoods") {
    const [low, high] = pair.extents[String(choice.number)]!;
    const room = (high - low) * 0.02 || 1;
    const range = [low - room, high + room] as const;
    const [across, up] = cells ? [a, b] : [b, a];
    const sides = cells ? ({ right: "a", up: "b" } as const) : ({ right: "b", up: "a" } as const);
    return { ...rest, x: (place) => across[place]!, y: (place) => up[place]!, across: range, up: range, sides, diagonal: true };
  }
  const most = largest(difference, places) * 1.04;
  const turn = cells ? -1 : 1;
  const ends = [mean[places[places.length - 1]!]!, mean[places[0]!]!] as const;
  const room = (ends[1] - ends[0]) * 0.03 || 1;
  return {
    ...rest,
    x: (place) => mean[place]!,
    y: (place) => turn * difference[place]!,
    across: [ends[0] - room, ends[1] + room],
    up: [-most, most],
    sides: cells ? { up: "b", down: "a" } : { up: "a", down: "b" },
    diagonal: false,
  };
}

export function squareChart(payload: Charts, number: number, choice: Choice, tint: (place: number) => number, by: number): Scatter {
  const square = payload.squares![number]!;
  const [first, second] = [payload.pairs[square.across]!, payload.pairs[square.up]!];
  const [x, y] = [valuesOf(payload, first).difference, valuesOf(payload, second).difference];
  const places = shownInSquare(payload, first, second, choice.number);
  const most = Math.max(largest(x, places), largest(y, places)) * 1.04;
  return {
    names: payload.tokens,
    places,
    tint,
    x: (place) => -x[place]!,
    y: (place) => -y[place]!,
    across: [-most, most],
    up: [-most, most],
    axes: square.axes,
    sides: {
      ...(by === square.across && ({ left: "a", right: "b" } as const)),
      ...(by === square.up && ({ down: "a", up: "b" } as const)),
    },
    diagonal: true,
    dot: 3,
  };
}

/** The pairs and squares of two rows and two columns, in the order of the page: rows, their square, columns, theirs. */
export function section(payload: Charts, rows: readonly [number, number], columns: readonly [number, number]): { pair?: number; square?: number }[] {
  const width = payload.columns!.length;
  const cell = (row: number, column: number) => row * width + column;
  const find = (a: number, b: number) => payload.pairs.findIndex((pair) => pair.a === a && pair.b === b);
  if (payload.rows!.length < 2) return [{ pair: find(cell(0, columns[0]), cell(0, columns[1])) }];
  const [p, q] = rows.map((row) => find(cell(row, columns[0]), cell(row, columns[1]))) as [number, number];
  const [r, s] = columns.map((column) => find(cell(rows[0], column), cell(rows[1], column))) as [number, number];
  const square = (across: number, up: number) => payload.squares!.findIndex((one) => one.across === across && one.up === up);
  return [{ pair: p }, { pair: q }, { square: square(p, q) }, { pair: r }, { pair: s }, { square: square(r, s) }];
}
