// From the weights of pieces to an alignment of words, as in the library's `Alignment`: the pieces of a source word are
// summed, those of a target word averaged, and the end of the source is left out.
import { visible } from "../../format";
import { meanWeights, type Selection } from "./payload";

export interface AlignmentData {
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  /** [rows, columns] in row-major order. */
  readonly weights: Float32Array;
  /** The row of the current step, or -1. */
  readonly current: number;
  /** The first step of each row. */
  readonly steps: readonly number[];
}

export function alignmentOf(selection: Selection): AlignmentData {
  const { payload, hypothesis, step, level } = selection;
  const pieceWeights = meanWeights(selection);
  if (level === "piece") {
    const steps = hypothesis.steps.map((_, number) => number);
    return { rows: hypothesis.pieces.tokens.map(visible), columns: payload.source.tokens.map(visible), weights: pieceWeights, current: step, steps };
  }
  const [rows, columns] = [hypothesis.pieces.words, payload.source.words];
  const [size, width] = [payload.source.tokens.length, columns.length];
  const weights = new Float32Array(rows.length * width);
  hypothesis.pieces.places.forEach((row, piece) => {
    if (row < rows.length) payload.source.places.forEach((column, at) => (weights[row * width + column]! += pieceWeights[piece * size + at]!));
  });
  for (let row = 0; row < rows.length; row++) {
    const part = weights.subarray(row * width, (row + 1) * width);
    const total = part.reduce((a, b) => a + b, 0);
    part.forEach((value, at) => (part[at] = value / Math.max(total, 1e-12)));
  }
  return { rows, columns, weights, current: hypothesis.pieces.places[step] ?? -1, steps: rows.map((_, row) => hypothesis.pieces.places.indexOf(row)) };
}

/** The column with the largest weight in each row. */
export function hardAlignment({ rows, columns, weights }: AlignmentData): number[] {
  return rows.map((_, row) => {
    let best = 0;
    for (let column = 1; column < columns.length; column++) if (weights[row * columns.length + column]! > weights[row * columns.length + best]!) best = column;
    return best;
  });
}

/** Source words that several target words are aligned to. */
export function oneToMany(data: AlignmentData): { readonly column: number; readonly rows: readonly number[] }[] {
  const hard = hardAlignment(data);
  return data.columns.map((_, column) => ({ column, rows: hard.flatMap((best, row) => (best === column ? [row] : [])) })).filter(({ rows }) => rows.length > 1);
}
