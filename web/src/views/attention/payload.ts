// The payload of the attention view.
import { bytes, halves } from "../../binary";
import type { Payload } from "../../view";

export interface RawMap {
  readonly kind: "encoder" | "decoder" | "cross" | "lstm" | "vit";
  readonly layers: number;
  readonly heads: number;
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  readonly row_words: readonly number[];
  readonly column_words: readonly number[];
  readonly row_segments: readonly number[];
  readonly column_segments: readonly number[];
  /** base64 of bytes [L,H,T,S], weight times 255; null if the maps are computed from q and k. */
  readonly weights: string | null;
  /** base64 of float16 [L,H,T,D]; with `q_step`, of signed bytes to be multiplied by the step of their vector. */
  readonly q: string | null;
  /** The same [L,H,S,D]. */
  readonly k: string | null;
  /** base64 of float16, one per vector. */
  readonly q_step?: string | null;
  readonly k_step?: string | null;
  readonly scale: number | null;
  /** base64 of float16 [H,T+S-1], by distance: the bias of row i and column j is at j - i + T - 1. */
  readonly bias?: string | null;
  readonly causal: boolean;
  /** base64 of bytes [L,T,S]. */
  readonly rollout: string | null;
  /** base64 of bytes [T,S]. */
  readonly flow: string | null;
}

export interface AttentionPayload extends Payload {
  readonly model: { readonly name: string; readonly family: string; readonly depth: number; readonly heads: number };
  readonly texts: readonly string[];
  readonly maps: readonly RawMap[];
  readonly image: string | null;
  /** Rows and columns of patches of the image. */
  readonly grid?: readonly [number, number] | null;
  readonly notes?: readonly string[];
}

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
