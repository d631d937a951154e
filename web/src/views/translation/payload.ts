// What the library sends for a translation (src/regard/interpret/translation), and what the user chose to see of it.
// Knows the numbers, draws nothing.
import { integerParameter, type Route } from "../../route";
import type { Payload } from "../../view";
import { bytes } from "../attention/payload";

export interface Pieces {
  readonly tokens: readonly string[];
  readonly words: readonly string[];
  /** The word of each token but the end. */
  readonly word_indices: readonly number[];
}

export interface Said {
  readonly token: string;
  readonly probability: number;
  readonly likeliest: readonly { readonly token: string; readonly probability: number }[];
}

/** Base64 of float32: query [L,H,T,D], scores and weights [L,H,T,S], context [L,H,T,E]. */
interface RawLooks {
  readonly query: string;
  readonly scores: string;
  readonly weights: string;
  readonly context: string;
}

export interface Told {
  readonly text: string;
  readonly score: number;
  readonly log_probability: number;
  readonly finished: boolean;
  readonly pieces: Pieces;
  readonly steps: readonly Said[];
  readonly attention: RawLooks | null;
}

export interface Model {
  readonly name: string;
  readonly kind: "transformer" | "lstm" | "gru";
  readonly score: "scaled dot" | "dot" | "general" | "additive" | "none";
  readonly recipe: "luong" | "deck" | null;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly scale: number | null;
}

export interface Translation extends Payload {
  /** None where the model that was asked does not translate. */
  readonly model: Model | null;
  readonly text: string;
  readonly source: Pieces;
  readonly hypotheses: readonly Told[];
  /** What alignments are made of. */
  readonly alignment_heads: { readonly layer: number; readonly heads: readonly number[]; readonly description: string } | null;
  readonly states: string | null;
  /** Null where heads take the states themselves. */
  readonly values: string | null;
  readonly notes: readonly string[];
  /** Not in an exported file. */
  readonly studio?: { readonly translators: readonly string[] };
}

export const SUBSTEPS = ["Look", "Score", "Softmax and multiply", "Sum"] as const;

/** One look of a step: all that leads from the states to the context. */
export interface Look {
  readonly query: Float32Array | null;
  /** None for several heads at once: each scores for itself. */
  readonly scores: Float32Array | null;
  readonly weights: Float32Array;
  readonly states: readonly Float32Array[];
  readonly values: readonly Float32Array[];
  readonly weighted: readonly Float32Array[];
  readonly context: Float32Array;
}

export interface Choice {
  readonly payload: Translation;
  readonly model: Model;
  readonly number: number;
  readonly told: Told;
  readonly step: number;
  readonly layer: number;
  /** Those that are shown: one, or those whose mean is. */
  readonly heads: readonly number[];
  readonly mean: boolean;
  /** How many of the four sub-steps are shown. */
  readonly shown: number;
  /** Which number of the vectors is written out. */
  readonly d: number;
  readonly level: "word" | "piece";
  readonly hard: boolean;
  readonly look: Look | null;
}

export function choiceOf(payload: Translation, { parameters }: Route): Choice | null {
  const { model, hypotheses, alignment_heads: alignmentHeads } = payload;
  if (!model || !hypotheses.length) return null;
  const number = integerParameter(parameters, "translation", hypotheses.length);
  const told = hypotheses[number]!;
  // Another translation may be shorter: then it is its last step.
  const step = Math.max(0, Math.min(Number.parseInt(parameters["step"] ?? "", 10) || 0, told.steps.length - 1));
  const layer = integerParameter(parameters, "layer", model.layers, alignmentHeads?.layer ?? 0);
  const one = integerParameter(parameters, "head", model.heads, model.heads === 1 ? 0 : -1);
  const heads = one >= 0 ? [one] : (alignmentHeads?.heads ?? []);
  const look = told.attention && lookOf(payload, told, step, layer, heads);
  return {
    payload,
    model,
    number,
    told,
    step,
    layer,
    heads,
    mean: one < 0,
    shown: integerParameter(parameters, "sub", 5, 4) || 4,
    d: integerParameter(parameters, "d", look?.context.length ?? 1),
    level: parameters["level"] === "piece" ? "piece" : "word",
    hard: parameters["alignment"] === "hard",
    look,
  };
}

const known = new WeakMap<object, Map<string, Float32Array>>();

function floats(owner: object, name: string, text: string): Float32Array {
  let all = known.get(owner);
  if (!all) known.set(owner, (all = new Map()));
  let found = all.get(name);
  if (!found) all.set(name, (found = new Float32Array(bytes(text).buffer)));
  return found;
}

/** Vectors side by side of each of some heads, as [rows][heads * width]. */
function beside(parts: readonly (readonly Float32Array[])[]): Float32Array[] {
  return parts[0]!.map((_, row) => Float32Array.from(parts.flatMap((part) => [...part[row]!])));
}

/** Row `at` of a tensor of `count` rows. */
function rowOf(data: Float32Array, at: number, count: number): Float32Array {
  const width = data.length / count;
  return data.subarray(at * width, (at + 1) * width);
}

function rowsOf(data: Float32Array, count: number): Float32Array[] {
  return Array.from({ length: count }, (_, row) => rowOf(data, row, count));
}

/** The weights [T,S] of the mean of some heads. */
export function weightsOf(payload: Translation, told: Told, layer: number, heads: readonly number[]): Float32Array {
  const [count, steps, size] = [payload.model!.heads, told.steps.length, payload.source.tokens.length];
  const all = floats(told.attention!, "weights", told.attention!.weights);
  const found = new Float32Array(steps * size);
  for (const head of heads) {
    const first = (layer * count + head) * found.length;
    for (let i = 0; i < found.length; i++) found[i]! += all[first + i]! / heads.length;
  }
  return found;
}

function lookOf(payload: Translation, told: Told, step: number, layer: number, heads: readonly number[]): Look {
  const { model, source } = payload;
  const [size, steps, every] = [source.tokens.length, told.steps.length, model!.heads];
  const raw = told.attention!;
  const rows = model!.layers * every * steps;
  const at = (head: number) => (layer * every + head) * steps + step;
  const of = (name: keyof RawLooks, head: number) => rowOf(floats(raw, name, raw[name]), at(head), rows);
  const states = rowsOf(floats(payload, "states", payload.states!), size);
  const valuesOf = (head: number) => {
    if (payload.values === null) return states;
    const all = floats(payload, "values", payload.values);
    const part = rowOf(all, layer * every + head, model!.layers * every);
    return rowsOf(part, size);
  };
  const values = heads.map(valuesOf);
  const weighted = values.map((part, number) => {
    const weights = of("weights", heads[number]!);
    return part.map((value, row) => value.map((x) => x * weights[row]!));
  });
  const single = heads.length === 1 ? heads[0]! : null;
  return {
    query: single === null ? null : of("query", single),
    scores: single === null ? null : of("scores", single),
    weights: Float32Array.from({ length: size }, (_, i) => heads.reduce((sum, head) => sum + of("weights", head)[i]!, 0) / heads.length),
    states,
    values: beside(values),
    weighted: beside(weighted),
    context: Float32Array.from(heads.flatMap((head) => [...of("context", head)])),
  };
}

/** The scores [S] of one head at a step. */
export function scoresOf(payload: Translation, told: Told, step: number, layer: number, head: number): Float32Array {
  const { layers, heads } = payload.model!;
  const steps = told.steps.length;
  return rowOf(floats(told.attention!, "scores", told.attention!.scores), (layer * heads + head) * steps + step, layers * heads * steps);
}

/** Which heads are shown, in words. */
export function headsOf({ model, layer, heads, mean }: Choice): string {
  if (model.kind !== "transformer") return `the ${model.kind.toUpperCase()}’s one attention (score ${model.score}, recipe ${model.recipe})`;
  return mean ? `layer ${layer}, the mean of heads ${heads.join(", ")}` : `layer ${layer}, head ${heads[0]}`;
}
