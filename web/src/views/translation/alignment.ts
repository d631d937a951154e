// From weights of pieces to an alignment of words, as the library's `Alignment` is made: the pieces of a source word are
// added up, those of a target word averaged, the source's end left out. Knows numbers, draws nothing.
import { visible } from "../search/trace";
import { weightsOf, type Choice } from "./payload";

export interface Aligned {
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  /** [rows, columns], row after row. */
  readonly weights: Float32Array;
  /** The row of the current step, or -1. */
  readonly current: number;
  /** The first step of each row. */
  readonly steps: readonly number[];
}

export function alignedOf(choice: Choice): Aligned {
  const { payload, told, layer, heads, step } = choice;
  const pieces = weightsOf(payload, told, layer, heads);
  if (choice.level === "piece") {
    const steps = told.steps.map((_, number) => number);
    return { rows: told.pieces.tokens.map(visible), columns: payload.source.tokens.map(visible), weights: pieces, current: step, steps };
  }
  const [rows, columns] = [told.pieces.words, payload.source.words];
  const [size, wide] = [payload.source.tokens.length, columns.length];
  const weights = new Float32Array(rows.length * wide);
  told.pieces.word_indices.forEach((row, piece) => {
    if (row < rows.length) payload.source.word_indices.forEach((column, at) => (weights[row * wide + column]! += pieces[piece * size + at]!));
  });
  for (let row = 0; row < rows.length; row++) {
    const part = weights.subarray(row * wide, (row + 1) * wide);
    const total = part.reduce((a, b) => a + b, 0);
    part.forEach((value, at) => (part[at] = value / Math.max(total, 1e-12)));
  }
  return { rows, columns, weights, current: told.pieces.word_indices[step] ?? -1, steps: rows.map((_, row) => told.pieces.word_indices.indexOf(row)) };
}

/** For each row the column that it looks at most. */
export function hardOf({ rows, columns, weights }: Aligned): number[] {
  return rows.map((_, row) => {
    let best = 0;
    for (let column = 1; column < columns.length; column++) if (weights[row * columns.length + column]! > weights[row * columns.length + best]!) best = column;
    return best;
  });
}

/** The columns that several rows look at most: one word of the source, many of the translation. */
export function manyOf(aligned: Aligned): { readonly column: number; readonly rows: readonly number[] }[] {
  const hard = hardOf(aligned);
  return aligned.columns.map((_, column) => ({ column, rows: hard.flatMap((found, row) => (found === column ? [row] : [])) })).filter(({ rows }) => rows.length > 1);
}

/** Pharaoh's format: source-target, both from 0. */
export function pharaoh(aligned: Aligned): string {
  return hardOf(aligned)
    .map((column, row) => `${column}-${row}`)
    .join(" ");
}
