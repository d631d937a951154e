// The payload of the tasks view.
import { percent } from "../../format";
import { integerParameter, type Route } from "../../route";
import type { Attribution } from "../../token_strips";
import type { Payload } from "../../view";

export interface Span {
  readonly start: number;
  readonly end: number;
  readonly probability: number;
}

/** The document of `regard predict`; which keys are present depends on the task. */
interface PredictionDocument {
  readonly label?: string | readonly string[];
  readonly probabilities?: Readonly<Record<string, number>> | readonly number[];
  readonly value?: number;
  readonly entities?: readonly (Span & { readonly text: string; readonly label: string })[];
  readonly tags?: readonly string[];
  readonly answer?: string;
  readonly start?: number;
  readonly end?: number;
  readonly probability?: number;
  readonly nbest?: readonly (Span & { readonly answer: string })[];
  readonly margin?: number | null;
  readonly choice?: number;
  readonly ending?: string;
}

export interface Evidence {
  readonly about: string;
  readonly token: number;
  readonly tokens: readonly string[];
  readonly special: readonly boolean[];
  readonly attention: readonly (readonly number[])[];
  readonly rollout: readonly number[];
  readonly integrated: Attribution;
  readonly gradient: Attribution;
}

export interface Prediction {
  readonly texts: readonly string[];
  readonly image: string | null;
  readonly prediction: PredictionDocument;
  readonly evidence: readonly Evidence[];
  /** Why there is no evidence. */
  readonly why: string;
}

export interface TrainingJob {
  readonly state: "running" | "done" | "failed" | "cancelled";
  readonly error: string;
  readonly task: string;
  readonly data: string;
  readonly model: string;
  readonly output: string;
  readonly command: string;
  readonly step: number;
  readonly steps: number;
  readonly epoch: number;
  readonly epochs: number;
  readonly rate: number;
  readonly left: number | null;
  readonly loss: number | null;
  readonly scores: Readonly<Record<string, number>>;
  readonly said: readonly string[];
  readonly seconds: number;
  readonly stopping: boolean;
}

export interface StudioInfo {
  readonly tuned: readonly string[];
  readonly pretrained: readonly string[];
  readonly tasks: readonly string[];
  /** The file format of each task. */
  readonly formats?: Readonly<Record<string, string>>;
  /** The folder that the studio writes to. */
  readonly folder: string;
  /** The labeled examples that come with Regard. */
  readonly ours: { readonly examples: number; readonly labels: readonly string[] };
  readonly training: TrainingJob | null;
}

export interface TasksPayload extends Payload {
  readonly model: { readonly name: string; readonly family: string; readonly task: string; readonly several: boolean } | null;
  readonly predictions: readonly Prediction[];
  readonly notes: readonly string[];
  /** Only in the studio. */
  readonly studio?: StudioInfo;
}

export function selectedPrediction(payload: TasksPayload, { parameters }: Route): Prediction | undefined {
  return payload.predictions[integerParameter(parameters, "example", payload.predictions.length)];
}

export function selectedEvidence({ evidence }: Prediction, { parameters }: Route): Evidence | undefined {
  return evidence[integerParameter(parameters, "about", evidence.length)];
}

/** Labels, or endings, with their probabilities in descending order. */
export function labelProbabilities({ texts, prediction }: Prediction): readonly (readonly [string, number])[] {
  const { probabilities } = prediction;
  if (!probabilities) return [];
  const pairs = Array.isArray(probabilities)
    ? (probabilities as readonly number[]).map((probability, i) => [texts[i + 1] ?? "", probability] as const)
    : Object.entries(probabilities as Readonly<Record<string, number>>);
  return [...pairs].sort((a, b) => b[1] - a[1]);
}

/** What a bar chart of the prediction shows: entities, answers or labels. */
export function namedProbabilities(prediction: Prediction): readonly (readonly [string, number])[] {
  const { entities, nbest } = prediction.prediction;
  if (entities) return entities.map((one) => [`${one.label} ${one.text}`, one.probability] as const);
  if (nbest) return nbest.map((one) => [one.answer || "no answer", one.probability] as const);
  return labelProbabilities(prediction);
}

/** The prediction in a few words. */
export function summary(one: Prediction): string {
  const { value, entities, nbest, probability, answer, ending, label } = one.prediction;
  if (value !== undefined) return value.toFixed(3);
  if (entities) return entities.map((entity) => `${entity.label} ${entity.text}`).join(", ") || "no entity";
  if (nbest) return `${percent(probability ?? 0)} ${answer || "no answer"}`;
  const probabilities = labelProbabilities(one);
  if (ending !== undefined) return `${percent(probabilities[0]?.[1] ?? 0)} ${ending}`;
  const byName = new Map(probabilities);
  const names = typeof label === "string" ? [label] : (label ?? []);
  return names.map((name) => `${percent(byName.get(name) ?? 0)} ${name}`).join(", ") || "no label";
}
