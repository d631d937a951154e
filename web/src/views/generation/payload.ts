// The payload of the generation view, and the requests that make it.
import { runVerb, type VerbEvent } from "../../api";
import { quoted } from "../../format";
import type { ChatMessage, GenerationRun, Progress } from "../../types";
import type { Arguments, ViewOf } from "../../view";

export type Run = GenerationRun & {
  /** Still being generated; with the progress of a beam search. */
  readonly running?: boolean;
  readonly progress?: Progress;
  /** Whether the user stopped it at this length. */
  readonly stopped?: boolean;
};

export type Generation = Omit<ViewOf<"generate">, "runs"> & { readonly runs: readonly Run[] };

export const percent = (probability: number) =>
  `${(100 * probability).toFixed(probability < 0.001 && probability > 0 ? 3 : 1)}%`;

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
    return [`beam of ${one.num_beams}`, ...penalty, ...(one.early_stopping ? ["early stopping"] : []), ...stops].join(
      ", ",
    );
  }
  const parts = [
    one.temperature === 0 ? "temperature 0: always the most probable token" : `temperature ${one.temperature}`,
  ];
  if (one.top_p < 1) parts.push(`top-p ${one.top_p}`);
  if (one.top_k !== null) parts.push(`top-k ${one.top_k}`);
  if (one.min_p > 0) parts.push(`min-p ${one.min_p}`);
  if (one.repetition_penalty !== 1) parts.push(`repetition penalty ${one.repetition_penalty}`);
  return [...parts, `seed ${one.seed}`, ...stops].join(", ");
}

/** The settings of the form with their defaults, by the names of the request. */
const DEFAULTS = {
  temperature: "0.8",
  top_p: "0.9",
  top_k: "0",
  min_p: "0",
  repetition_penalty: "1",
  seed: "0",
  max_new_tokens: "60",
  num_beams: "1",
} as const;
export type SettingName = keyof typeof DEFAULTS;
export const SETTINGS = Object.keys(DEFAULTS) as readonly SettingName[];
const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"]; // not for a beam search

/** The form values of one text. */
export interface ColumnValues extends Readonly<Record<SettingName, string>> {
  readonly model: string;
}

/** The columns of the arguments; what the second does not set is as in the first. */
export function columnsOf(args: Arguments): readonly ColumnValues[] {
  const values = (prefix: string, others: Arguments) =>
    Object.fromEntries(
      ["model", ...SETTINGS].map((name) => [
        name,
        args[prefix + name] || others[name] || DEFAULTS[name as SettingName] || "",
      ]),
    ) as unknown as ColumnValues;
  const first = values("", {});
  return args["second"] ? [first, values("b_", { ...first })] : [first];
}

/** Whether another seed may give another text. */
export const isRandom = ({ num_beams, temperature }: ColumnValues) =>
  !(Number(num_beams) > 1) && Number(temperature) !== 0;

/** The arguments of the columns; defaults are omitted, so that addresses stay short. */
export function toArguments(prompt: string, columns: readonly ColumnValues[]): Record<string, string> {
  const [first, second] = columns;
  const args: Record<string, string> = { prompt, model: first!.model };
  for (const name of SETTINGS) if (first![name] !== DEFAULTS[name]) args[name] = first![name];
  if (!second) return args;
  args["second"] = "on";
  for (const name of ["model", ...SETTINGS] as const)
    if (second[name] !== first![name]) args[`b_${name}`] = second[name];
  return args;
}

/** The arguments of a chat: the prompt is a message, or a JSON list of messages if there are several. */
export function chatArguments(messages: readonly ChatMessage[]): Record<string, string> {
  const system = messages[0]?.role === "system" ? messages[0].content : "";
  const others = messages.slice(system ? 1 : 0);
  const alone = others.length === 1 && others[0]!.role === "user";
  return { chat: "on", prompt: alone ? others[0]!.content : JSON.stringify(others), ...(system && { system }) };
}

/** The messages of a chat with the answer, if it is complete. */
export function conversation({ messages, tokens, running }: Run): readonly ChatMessage[] {
  const answer = tokens.map(({ text }) => text).join("");
  return running || !messages ? (messages ?? []) : [...messages, { role: "assistant", content: answer }];
}

function toRequest(args: Arguments, column: ColumnValues): object {
  const searching = Number(column.num_beams) > 1;
  const settings = Object.entries(column).filter(
    ([name, value]) => !(searching && SAMPLING.includes(name)) && !(name === "top_k" && value === "0"),
  );
  const chat = args["chat"] ? { chat: true, ...(args["system"] && { system: args["system"] }) } : {};
  return {
    ...Object.fromEntries(settings),
    ...chat,
    prompt: args["prompt"] ?? "",
    candidates: true,
    ...(searching && { num_return_sequences: column.num_beams }),
  };
}

/** Generates the texts of the columns at the same time; `show` displays them as they grow. */
export async function load(
  args: Arguments,
  show: (payload: Generation) => void,
  signal: AbortSignal,
): Promise<Generation> {
  const columns = columnsOf(args);
  const results: (Generation | undefined)[] = columns.map(() => undefined);
  const partial: (Run | undefined)[] = columns.map(() => undefined);
  const merged = (): Generation => {
    const finished = results.flatMap((one) => one ?? []);
    const runs = columns.flatMap((_, number) => results[number]?.runs ?? partial[number] ?? []);
    return {
      view: "generation",
      notes: [],
      cli: finished.map((one) => one.cli).join("\n"),
      python: finished.map((one) => one.python).join("\n\n"),
      runs,
    };
  };
  const generate = async (column: ColumnValues, number: number) => {
    const onEvent = (event: VerbEvent) => {
      partial[number] = updated(partial[number], event);
      if (columns.every((_, at) => partial[at] ?? results[at])) show(merged());
    };
    results[number] = await runVerb<Generation>("generate", toRequest(args, column), onEvent, signal);
  };
  await Promise.all(columns.map(generate));
  return merged();
}

function updated(run: Run | undefined, event: VerbEvent): Run | undefined {
  if (event.type === "started") return { ...event.run, tokens: [], running: true };
  if (!run) return run;
  if (event.type === "progress") return { ...run, progress: event };
  return "tokens" in event ? { ...run, tokens: [...run.tokens, ...event.tokens] } : run;
}
