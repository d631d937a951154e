// What the library says of texts that are written (src/regard/interpret/generation).
import type { Payload } from "../../view";
import { quoted, type Trace } from "../search/trace";

export interface Bar {
  readonly token: number;
  readonly text: string;
  readonly probability: number;
  readonly tempered: number;
  readonly reached: number | null;
  readonly chance: number;
  readonly by: string | null;
}

export interface Token {
  readonly id: number;
  readonly text: string;
  readonly name: string;
  readonly bars: readonly Bar[];
  readonly kept: number;
  readonly share: number;
  readonly vocabulary: number;
}

export interface Settings {
  readonly method: "sample" | "greedy" | "beam";
  readonly seed: number;
  readonly max_tokens: number;
  readonly stops: readonly string[];
  readonly beam: number;
  readonly length_penalty: number;
  readonly early: boolean;
  readonly repetition_penalty: number;
  readonly temperature: number;
  readonly top_k: number | null;
  readonly top_p: number;
  readonly min_p: number;
}

export type Reason = "end" | "stop" | "length" | "interrupted";

export interface Run {
  readonly model: { readonly name: string; readonly family: string };
  readonly settings: Settings;
  /** Whether it continues its prompt; a T5 answers it. */
  readonly continues: boolean;
  /** Tokens of the prompt's beginning that did not fit, and their text. */
  readonly cut: number;
  readonly lost: string;
  /** How many tokens there is room for, up to what was asked. */
  readonly max_tokens: number;
  readonly tokens: readonly Token[];
  readonly reason: Reason;
  readonly trace: Trace | null;
  /** Whether it has the length at which somebody stopped it. */
  readonly stopped?: boolean;
  /** Of a search under way: how far it is. */
  readonly progress?: { readonly step: number; readonly of: number; readonly text: string };
}

export interface Studio {
  readonly writers: readonly string[];
  readonly prompts: Readonly<Record<string, string>>;
  readonly most_tokens: number;
  readonly most_beam: number;
}

export interface Generation extends Payload {
  readonly prompt: string;
  readonly caveat: string;
  readonly runs: readonly Run[];
  /** Why there are no runs. */
  readonly note?: string;
  /** Only in the studio: there is a server to ask. */
  readonly studio?: Studio;
}

export const percent = (share: number) => `${(100 * share).toFixed(share < 0.001 && share > 0 ? 3 : 1)}%`;

export const texts = (run: Run) => run.tokens.map((token) => token.text).join("");

/** The place whose bars are shown: the chosen one, or the last. */
export function placeOf(run: Run, parameters: Readonly<Record<string, string>>): number {
  const asked = Number.parseInt(parameters["lock"] ?? "", 10);
  const last = run.tokens.length - 1;
  return Number.isInteger(asked) && asked >= 0 ? Math.min(asked, last) : last;
}

/** The settings of a run in a few words. */
export function told({ settings: one }: Run): string {
  const stops = one.stops.map((stop) => `until ${quoted(stop)}`);
  if (one.method === "beam") {
    const penalty = one.length_penalty === 1 ? [] : [`length penalty ${one.length_penalty}`];
    return [`beam of ${one.beam}`, ...penalty, ...(one.early ? ["early"] : []), ...stops].join(", ");
  }
  const parts = [one.temperature === 0 ? "temperature 0: the likeliest always" : `temperature ${one.temperature}`];
  if (one.top_p < 1) parts.push(`top-p ${one.top_p}`);
  if (one.top_k !== null) parts.push(`top-k ${one.top_k}`);
  if (one.min_p > 0) parts.push(`min-p ${one.min_p}`);
  if (one.repetition_penalty !== 1) parts.push(`repetition penalty ${one.repetition_penalty}`);
  return [...parts, `seed ${one.seed}`, ...stops].join(", ");
}

/** Settings of a column by the names of the server's arguments, as they stand where nobody has chosen. */
export const STARTS = { temperature: "0.8", top_p: "0.9", top_k: "0", min_p: "0", repetition: "1", seed: "0", tokens: "60", beam: "0" } as const;
export type Setting = keyof typeof STARTS;
export const SETTINGS = Object.keys(STARTS) as readonly Setting[];

/** What a column is asked with. */
export interface Column extends Readonly<Record<Setting, string>> {
  readonly model: string;
}

export function columnOf(run: Run): Column {
  const { settings: one, model } = run;
  return {
    model: model.name,
    temperature: String(one.temperature),
    top_p: String(one.top_p),
    top_k: String(one.top_k ?? 0),
    min_p: String(one.min_p),
    repetition: String(one.repetition_penalty),
    seed: String(one.seed),
    tokens: String(one.max_tokens),
    beam: String(one.beam),
  };
}

/** Whether another seed gives another text: a search leaves nothing to chance, and neither does temperature 0. */
export const byChance = ({ beam, temperature }: Column) => !(Number(beam) > 0) && Number(temperature) !== 0;

/** The server's arguments; what is as it stands at first is left out, so that addresses stay short. */
export function asked(prompt: string, columns: readonly Column[]): Record<string, string> {
  const [first, second] = columns;
  const found: Record<string, string> = { prompt, model: first!.model };
  for (const name of SETTINGS) if (first![name] !== STARTS[name]) found[name] = first![name];
  if (!second) return found;
  found["second"] = "on";
  for (const name of ["model", ...SETTINGS] as const) if (second[name] !== first![name]) found[`b_${name}`] = second[name];
  return found;
}

export const argumentsOf = ({ prompt, runs }: Generation) => asked(prompt, runs.map(columnOf));
