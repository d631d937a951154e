// Queries and keys of the attention view.
import { bytes, halves } from "../../binary";
import type { AttentionView } from "../../types";
import type { Payload } from "../../view";

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
