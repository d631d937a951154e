// What the library sends for this view, and how its numbers are written. Draws nothing.
import type { Route } from "../../route";
import { integerParameter } from "../../route";
import type { Payload } from "../../view";

export interface Span {
  readonly start: number;
  readonly end: number;
  readonly probability: number;
}

export interface Entity extends Span {
  readonly text: string;
  readonly label: string;
}

export interface Answer extends Span {
  readonly answer: string;
}

/** What `regard predict` prints; which keys there are depends on the task. */
export interface Prediction {
  readonly label?: string | readonly string[];
  readonly probabilities?: Readonly<Record<string, number>> | readonly number[];
  readonly value?: number;
  readonly entities?: readonly Entity[];
  readonly tags?: readonly string[];
  readonly answer?: string;
  readonly start?: number;
  readonly end?: number;
  readonly probability?: number;
  readonly nbest?: readonly Answer[];
  readonly margin?: number | null;
  readonly choice?: number;
  readonly ending?: string;
}

export interface Attribution {
  readonly scores: readonly number[];
  readonly value: number;
  readonly baseline: string | null;
  readonly baseline_value: number | null;
  readonly steps: number | null;
  readonly completeness_error: number | null;
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

export interface Said {
  readonly texts: readonly string[];
  readonly image: string | null;
  readonly prediction: Prediction;
  readonly evidence: readonly Evidence[];
  /** Why there is no evidence. */
  readonly why: string;
}

export interface Job {
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

export interface Tasks extends Payload {
  readonly model: { readonly name: string; readonly family: string; readonly task: string; readonly several: boolean } | null;
  readonly predictions: readonly Said[];
  readonly notes: readonly string[];
  /** In the studio alone. */
  readonly studio?: {
    readonly tuned: readonly string[];
    readonly pretrained: readonly string[];
    readonly tasks: readonly string[];
    /** The labelled examples that come with Regard. */
    /** Where the studio writes. */
    readonly folder: string;
    readonly ours: { readonly examples: number; readonly labels: readonly string[] };
    readonly training: Job | null;
  };
}

/** The example that is shown in detail. */
export function chosen(payload: Tasks, here: Route): Said | undefined {
  return payload.predictions[integerParameter(here.parameters, "example", payload.predictions.length)];
}

/** What is looked into, of what a prediction stands on. */
export function looked(said: Said, here: Route): Evidence | undefined {
  return said.evidence[integerParameter(here.parameters, "about", said.evidence.length)];
}

/** Names and shares, the largest first; endings are named by their texts. */
export function shares(said: Said): readonly (readonly [string, number])[] {
  const { probabilities } = said.prediction;
  if (!probabilities) return [];
  const pairs = Array.isArray(probabilities)
    ? (probabilities as readonly number[]).map((share, place) => [said.texts[place + 1] ?? "", share] as const)
    : Object.entries(probabilities as Readonly<Record<string, number>>);
  return [...pairs].sort((a, b) => b[1] - a[1]);
}

export function percent(share: number): string {
  if (share < 1 && share >= 0.9995) return ">99.9%";
  if (share > 0 && share < 0.0005) return "<0.1%";
  return `${(100 * share).toFixed(1)}%`;
}

export function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
}

/** The prediction in a few words. */
export function summary(said: Said): string {
  const { prediction } = said;
  if (prediction.value !== undefined) return prediction.value.toFixed(3);
  if (prediction.entities) return prediction.entities.map((one) => `${one.label} ${one.text}`).join(", ") || "no entity";
  if (prediction.nbest) return `${percent(prediction.probability ?? 0)} ${prediction.answer || "no answer"}`;
  if (prediction.ending !== undefined) return `${percent(shares(said)[0]?.[1] ?? 0)} ${prediction.ending}`;
  const all = new Map(shares(said));
  const names = typeof prediction.label === "string" ? [prediction.label] : (prediction.label ?? []);
  return names.map((name) => `${percent(all.get(name) ?? 0)} ${name}`).join(", ") || "no label";
}

/** Offsets count integerParameter characters, and a script's strings count halves of some. */
export function cut(text: string, start: number, end?: number): string {
  return Array.from(text).slice(start, end).join("");
}
