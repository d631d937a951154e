// What the walk's page gets, and its stages in order.
import type { Payload } from "../../view";

export interface Outcome {
  readonly train: number;
  readonly test: number;
  readonly accuracy: number;
  readonly guess: number;
  readonly mean: number;
  readonly deviation: number;
}

export interface Walk extends Payload {
  readonly model: { readonly name: string };
  readonly layer: number | string;
  readonly texts: readonly string[];
  readonly tokens: readonly (readonly string[])[];
  readonly ids: readonly (readonly number[])[];
  readonly padded: readonly (readonly number[])[];
  readonly mask: readonly (readonly number[])[];
  readonly matrix: readonly [number, number];
  readonly padding: number;
  readonly hidden: readonly [number, number, number];
  readonly slice: readonly [number, number];
  readonly features: readonly (readonly number[])[];
  readonly labels: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
  readonly pooling: string;
  readonly masked: Outcome;
  readonly unmasked: Outcome;
  readonly similarity: number;
  readonly examples: readonly (readonly [string, string])[];
  readonly notes: readonly string[];
}

export const STAGES = ["Sentences", "Tokens", "Ids", "Padding", "Mask", "Hidden states", "Slice", "Learning", "Score"] as const;

export const by = (shape: readonly number[]) => shape.map((size) => size.toLocaleString("en")).join(" × ");
