// The payload of the generation view, and the arguments of its requests.
import { quoted } from "../../format";
import type { GenerationRun, GenerationView } from "../../types";
import type { Payload } from "../../view";

export interface Run extends GenerationRun {
  /** Whether the user stopped it at this length. */
  readonly stopped?: boolean;
  /** Progress of a beam search. */
  readonly progress?: { readonly step: number; readonly total: number; readonly text: string };
}

export interface StudioInfo {
  readonly writers: readonly string[];
  readonly prompts: Readonly<Record<string, string>>;
  readonly most_tokens: number;
  readonly most_beam: number;
}

export interface Generation extends Payload, GenerationView {
  readonly runs: readonly Run[];
  /** Why there are no runs. */
  readonly note?: string;
  /** Only in the studio. */
  readonly studio?: StudioInfo;
}

export const percent = (probability: number) => `${(100 * probability).toFixed(probability < 0.001 && probability > 0 ? 3 : 1)}%`;

/** Index of the token whose candidates are shown: the selected one, or the last. */
export function selectedToken(run: Run, parameters: Readonly<Record<string, string>>): number {
  const index = Number.parseInt(parameters["lock"] ?? "", 10);
  const last = run.tokens.length - 1;
  return Number.isInteger(index) && index >= 0 ? Math.min(index, last) : last;
}

export function describeSettings({ settings: one, method }: Run): string {
  const stops = one.stop.map((stop) => `until ${quoted(stop)}`);
  if (method === "beam") {
    const penalty = one.length_penalty === 1 ? [] : [`length penalty ${one.length_penalty}`];
    return [`beam of ${one.num_beams}`, ...penalty, ...(one.early_stopping ? ["early stopping"] : []), ...stops].join(", ");
  }
  const parts = [one.temperature === 0 ? "temperature 0: always the most probable token" : `temperature ${one.temperature}`];
  if (one.top_p < 1) parts.push(`top-p ${one.top_p}`);
  if (one.top_k !== null) parts.push(`top-k ${one.top_k}`);
  if (one.min_p > 0) parts.push(`min-p ${one.min_p}`);
  if (one.repetition_penalty !== 1) parts.push(`repetition penalty ${one.repetition_penalty}`);
  return [...parts, `seed ${one.seed}`, ...stops].join(", ");
}

/** Default settings by the names of the server's arguments. */
const DEFAULTS = { temperature: "0.8", top_p: "0.9", top_k: "0", min_p: "0", repetition: "1", seed: "0", tokens: "60", beam: "0" } as const;
export type SettingName = keyof typeof DEFAULTS;
export const SETTINGS = Object.keys(DEFAULTS) as readonly SettingName[];

/** The form values of one text. */
export interface ColumnValues extends Readonly<Record<SettingName, string>> {
  readonly model: string;
}

export function columnValues({ settings: one, model }: Run): ColumnValues {
  return {
    model,
    temperature: String(one.temperature),
    top_p: String(one.top_p),
    top_k: String(one.top_k ?? 0),
    min_p: String(one.min_p),
    repetition: String(one.repetition_penalty),
    seed: String(one.seed),
    tokens: String(one.max_new_tokens),
    beam: String(one.num_beams > 1 ? one.num_beams : 0),
  };
}

/** Whether another seed may give another text. */
export const isRandom = ({ beam, temperature }: ColumnValues) => !(Number(beam) > 0) && Number(temperature) !== 0;

/** The server's arguments; defaults are omitted, so that addresses stay short. */
export function toArguments(prompt: string, columns: readonly ColumnValues[]): Record<string, string> {
  const [first, second] = columns;
  const args: Record<string, string> = { prompt, model: first!.model };
  for (const name of SETTINGS) if (first![name] !== DEFAULTS[name]) args[name] = first![name];
  if (!second) return args;
  args["second"] = "on";
  for (const name of ["model", ...SETTINGS] as const) if (second[name] !== first![name]) args[`b_${name}`] = second[name];
  return args;
}

export const argumentsOf = ({ prompt, runs }: Generation) => toArguments(prompt, runs.map(columnValues));
