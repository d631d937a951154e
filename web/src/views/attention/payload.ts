// What the library sends for this view, and its arrays, decoded once. Knows base64 and halves; draws nothing.
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
  /** base64 of bytes [L,H,T,S], weight times 255; null where the maps are to be made of q and k. */
  readonly weights: string | null;
  /** base64 of 16-bit floats [L,H,T,D]; with `q_step` of signed bytes, each vector times its step. */
  readonly q: string | null;
  /** The same [L,H,S,D]. */
  readonly k: string | null;
  /** base64 of 16-bit floats, one a vector. */
  readonly q_step?: string | null;
  readonly k_step?: string | null;
  readonly scale: number | null;
  /** base64 of 16-bit floats [H,T+S-1], by distance: that of row i and column j is at j - i + T - 1. */
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
  /** What was cut or left out, and why. */
  readonly notes?: readonly string[];
}

export function bytes(text: string): Uint8Array {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) found[i] = letters.charCodeAt(i);
  return found;
}

/** IEEE halves, little-endian, as floats. */
export function halves(raw: Uint8Array): Float32Array {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => half(bits));
  const found = new Float32Array(raw.length >> 1);
  for (let i = 0; i < found.length; i++) found[i] = table[raw[2 * i]! | (raw[2 * i + 1]! << 8)]!;
  return found;
}

/** Vectors [N,D] as they came: 16-bit floats, or signed bytes with a step for each vector. Decoded where asked for. */
export class Vectors {
  private readonly raw: Uint8Array;
  private readonly steps: Float32Array | null;
  readonly width: number;

  constructor(text: string, steps: string | null, count: number) {
    this.raw = bytes(text);
    this.steps = steps ? halves(bytes(steps)) : null;
    this.width = this.raw.length / (steps ? 1 : 2) / count;
  }

  /** Those from `first` up to but without `last`, one after the other. */
  slice(first: number, last: number): Float32Array {
    const { raw, steps, width } = this;
    if (!steps) return halves(raw.subarray(2 * first * width, 2 * last * width));
    const found = new Float32Array((last - first) * width);
    for (let vector = first, at = 0; vector < last; vector++) {
      const step = steps[vector]!;
      for (let d = 0; d < width; d++, at++) found[at] = ((raw[vector * width + d]! << 24) >> 24) * step;
    }
    return found;
  }
}

let table: Float32Array | undefined;

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * 2 ** -24 * fraction;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 25) * (1024 + fraction);
}
