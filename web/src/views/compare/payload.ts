// The payload of the compare view.
import { floats } from "../../binary";
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
  /** Numbers of tokens that can be shown; 0 means all. */
  readonly numbers: readonly number[];
  /** Differences above this fraction of the largest one have the full color. */
  readonly palette: number;
  readonly tokens: readonly string[];
  readonly sentences: readonly { text: string; model: string; total: number; logits: string }[];
  readonly pairs: readonly Pair[];
  readonly rows?: readonly string[];
  readonly columns?: readonly string[];
  /** Differences of two pairs against each other, by the indices of the pairs. */
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

export function logits(payload: Charts, sentence: number): Float32Array {
  return floats(payload.sentences[sentence]!.logits);
}

export function probability(payload: Charts, sentence: number, token: number): number {
  return Math.exp(logits(payload, sentence)[token]! - payload.sentences[sentence]!.total);
}
