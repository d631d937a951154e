// The payload of the translation view, and what the route selects.
import { floats } from "../../binary";
import { integerParameter, layerParameter, type Route } from "../../route";
import type { CrossAttention, DecodedHypothesis, TranslatorView } from "../../types";
import type { ViewOf } from "../../view";

export type Translation = ViewOf<"translate">;

export const SUBSTEPS = ["States", "Score", "Softmax", "Multiply", "Sum"] as const;

/** The attention of one time step: everything from the encoder states to the context vector. */
export interface StepAttention {
  /** Query and scores are null for several heads: each has its own. */
  readonly query: Float32Array | null;
  readonly scores: Float32Array | null;
  readonly weights: Float32Array;
  readonly states: readonly Float32Array[];
  readonly values: readonly Float32Array[];
  readonly weighted: readonly Float32Array[];
  readonly context: Float32Array;
}

export interface Selection {
  readonly payload: Translation;
  readonly model: TranslatorView;
  readonly number: number;
  readonly hypothesis: DecodedHypothesis;
  readonly step: number;
  readonly layer: number;
  /** One head, or those whose mean is shown. */
  readonly heads: readonly number[];
  readonly mean: boolean;
  /** How many of the five sub-steps are shown. */
  readonly substeps: number;
  /** The dimension whose numbers are written out. */
  readonly dimension: number;
  readonly level: "word" | "piece";
  readonly hard: boolean;
  readonly attention: StepAttention | null;
}

export function selectionOf(payload: Translation, { parameters }: Route): Selection | null {
  const { model, hypotheses, alignment_heads: aligned } = payload;
  if (!hypotheses.length) return null;
  const number = integerParameter(parameters, "translation", hypotheses.length);
  const hypothesis = hypotheses[number]!;
  // Another hypothesis may be shorter: then its last step is shown.
  const step = Math.max(0, Math.min(Number.parseInt(parameters["step"] ?? "", 10) || 0, hypothesis.steps.length - 1));
  const layer = layerParameter(parameters, model.layers, aligned?.layer);
  const mean = parameters["head"] === "mean" && model.heads > 1;
  const heads = mean ? (aligned?.heads ?? []) : [integerParameter(parameters, "head", model.heads, aligned?.sharpest)];
  const attention = hypothesis.attention && attentionOf(payload, hypothesis, step, layer, heads);
  return {
    payload,
    model,
    number,
    hypothesis,
    step,
    layer,
    heads,
    mean,
    substeps: integerParameter(parameters, "sub", SUBSTEPS.length + 1, SUBSTEPS.length) || SUBSTEPS.length,
    dimension: integerParameter(parameters, "d", attention?.context.length ?? 1),
    level: parameters["level"] === "piece" ? "piece" : "word",
    hard: parameters["alignment"] === "hard",
    attention,
  };
}

/** Row `index` of an array of `count` rows. */
function rowOf(data: Float32Array, index: number, count: number): Float32Array {
  const width = data.length / count;
  return data.subarray(index * width, (index + 1) * width);
}

function rowsOf(data: Float32Array, count: number): Float32Array[] {
  return Array.from({ length: count }, (_, row) => rowOf(data, row, count));
}

/** The vectors of several heads next to each other, as [rows][heads * width]. */
function concatenateHeads(heads: readonly (readonly Float32Array[])[]): Float32Array[] {
  return heads[0]!.map((_, row) => Float32Array.from(heads.flatMap((vectors) => [...vectors[row]!])));
}

/** The mean of some heads' weights [T,S]. */
export function meanWeights({ payload, hypothesis, layer, heads }: Selection): Float32Array {
  const [count, steps, size] = [payload.model.heads, hypothesis.steps.length, payload.source.tokens.length];
  const all = floats(hypothesis.attention!.weights);
  const mean = new Float32Array(steps * size);
  for (const head of heads) {
    const first = ((layer - 1) * count + head) * mean.length;
    for (let i = 0; i < mean.length; i++) mean[i]! += all[first + i]! / heads.length;
  }
  return mean;
}

/** A query, scores, weights or a context of one head at one step. */
export function headVector(
  { model }: Translation,
  hypothesis: DecodedHypothesis,
  name: keyof CrossAttention,
  step: number,
  layer: number,
  head: number,
): Float32Array {
  const [steps, heads] = [hypothesis.steps.length, model.heads];
  return rowOf(
    floats(hypothesis.attention![name]),
    ((layer - 1) * heads + head) * steps + step,
    model.layers * heads * steps,
  );
}

function attentionOf(
  payload: Translation,
  hypothesis: DecodedHypothesis,
  step: number,
  layer: number,
  heads: readonly number[],
): StepAttention {
  const model = payload.model;
  const size = payload.source.tokens.length;
  const vector = (name: keyof CrossAttention, head: number) => headVector(payload, hypothesis, name, step, layer, head);
  const encoder = payload.encoder!;
  const states = rowsOf(floats(encoder.states), size);
  const values = heads.map((head) =>
    encoder.values === null
      ? states
      : rowsOf(rowOf(floats(encoder.values), (layer - 1) * model.heads + head, model.layers * model.heads), size),
  );
  const weighted = values.map((vectors, number) => {
    const weights = vector("weights", heads[number]!);
    return vectors.map((value, row) => value.map((x) => x * weights[row]!));
  });
  const single = heads.length === 1 ? heads[0]! : null;
  return {
    query: single === null ? null : vector("query", single),
    scores: single === null ? null : vector("scores", single),
    weights: Float32Array.from(
      { length: size },
      (_, i) => heads.reduce((sum, head) => sum + vector("weights", head)[i]!, 0) / heads.length,
    ),
    states,
    values: concatenateHeads(values),
    weighted: concatenateHeads(weighted),
    context: Float32Array.from(heads.flatMap((head) => [...vector("context", head)])),
  };
}

/**
 * The time step as the lectures count: a recurrent encoder reads the words of the source in the first steps. The pieces
 * of a word share a number, end tokens have none.
 */
export function timeStep(
  { payload, hypothesis }: Selection,
  step: number,
): { readonly number: number | null; readonly count: number } {
  const first = payload.time_steps_read;
  if (!first) return { number: step + 1, count: hypothesis.steps.length };
  const word = hypothesis.pieces.word_indices[step];
  return { number: word === undefined ? null : first + word + 1, count: first + hypothesis.pieces.words.length };
}

export function describeTimeStep(selection: Selection, step = selection.step): string {
  const { number, count } = timeStep(selection, step);
  return number === null ? `After time step ${count}` : `Time step ${number} of ${count}`;
}

export function describeHeads({ model, layer, heads, mean }: Selection): string {
  if (model.recurrent)
    return `the single attention of the ${model.kind.toUpperCase()} (score ${model.score}, recipe ${model.recipe})`;
  return mean ? `layer ${layer}, mean of heads ${heads.join(", ")}` : `layer ${layer}, head ${heads[0]}`;
}
