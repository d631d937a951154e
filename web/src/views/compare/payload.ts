// What the library says of a comparison. Knows the payload's shape and how to read its numbers.
import type { Payload } from "../../view";

export interface Axes {
  readonly right: string;
  readonly up: string;
  readonly left?: string;
  readonly down?: string;
}

export interface Pair {
  readonly a: number;
  readonly b: number;
  readonly labels: readonly [string, string];
  readonly axes: Readonly<Record<ChartKind, Axes>>;
  /** By number of tokens: the range of logits in "likelihoods". */
  readonly extents: Readonly<Record<string, readonly [number, number]>>;
  readonly captions: Readonly<Record<ChartKind, Readonly<Record<string, string>>>>;
}

export type ChartKind = "likelihoods" | "differences";

interface Base extends Payload {
  readonly asked: { texts: readonly string[]; models: readonly string[]; number: number; chart: ChartKind };
  readonly warning: string;
}

export interface Charts extends Base {
  readonly kind: "pair" | "grid";
  /** How many tokens can be shown; 0 is all. */
  readonly numbers: readonly number[];
  /** From this share of the greatest difference on, the colour is full. */
  readonly palette: number;
  readonly tokens: readonly string[];
  readonly sentences: readonly { text: string; model: string; total: number; logits: string }[];
  readonly pairs: readonly Pair[];
  readonly rows?: readonly string[];
  readonly columns?: readonly string[];
  /** Difference against difference, by the numbers of two pairs. */
  readonly squares?: readonly { across: number; up: number; axes: Required<Axes> }[];
}

export interface Sweep extends Base {
  readonly kind: "sweep";
  readonly values: readonly number[];
  readonly labels: readonly string[];
  readonly caption: string;
  readonly tokens: readonly string[];
  readonly series: string;
}

export interface Sentence extends Base {
  readonly kind: "sentence";
  readonly text: string;
  readonly model: string;
  readonly words: readonly { word: string; spaced: boolean; completions: readonly [string, number][] }[];
}

export type Comparison = Charts | Sweep | Sentence;

const read = new Map<string, Float32Array>();

/** float32 values from base64; read once. */
export function floats(text: string): Float32Array {
  let values = read.get(text);
  if (!values) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    values = new Float32Array(bytes.buffer);
    if (read.size > 200) read.clear();
    read.set(text, values);
  }
  return values;
}

export function logits(payload: Charts, sentence: number): Float32Array {
  return floats(payload.sentences[sentence]!.logits);
}
