// Generation: a model continues a prompt, token by token, with the alternatives at every position.
import { useState } from "preact/hooks";
import { request } from "../api";
import { ErrorMessage, ModelLinks, Select } from "../components";
import { currentRoute, navigate, setParameters } from "../route";
import type { Field, View } from "../view";
import { Column } from "./generation/column";
import { drawing, table } from "./generation/export";
import "./generation/generation.css";
import { argumentsOf, columnValues, type ColumnValues, type Generation, isRandom, type Run, type SettingName, SETTINGS, type StudioInfo, toArguments } from "./generation/payload";
import { useStream } from "./generation/stream";

const NAME = "generation";

function Show({ payload }: { payload: Generation }) {
  return (
    <div class="generation">
      {payload.runs.length ? <Texts payload={payload} /> : <NoModel payload={payload} />}
      <p class="generation-caveat">{payload.caveat}</p>
    </div>
  );
}

function Texts({ payload }: { payload: Generation }) {
  const { studio, prompt } = payload;
  const { stream, stop, restart } = useStream(payload);
  const [error, setError] = useState("");
  const running = stream.state === "running";
  const run = (args: Readonly<Record<string, string>>) => {
    setError("");
    if (isEqual(args, argumentsOf(payload))) return restart();
    stop();
    navigate({ view: NAME, parameters: args }, { push: true });
  };
  // A stopped text is the complete result of a request for fewer tokens, which becomes the route.
  const halt = () => {
    const counts = stop();
    const changes = counts.flatMap((count, number) => (count ? [[number ? "b_tokens" : "tokens", String(count)] as const] : []));
    // A second text that had finished keeps its length when the first is stopped.
    const finished = counts.length > 1 && !counts[1] ? { b_tokens: String(payload.runs[1]!.settings.max_new_tokens) } : {};
    if (counts.some((count) => count)) setParameters({ ...argumentsOf(payload), ...finished, ...Object.fromEntries(changes) });
  };
  const branch = (from: Run, ids: readonly number[]) => {
    setError("");
    request<{ prompt: string }>("branch", { model: from.model, prompt, ids: ids.join(" ") }).then(
      (result) => run({ ...argumentsOf(payload), prompt: result.prompt }),
      (problem: Error) => setError(problem.message),
    );
  };
  return (
    <>
      {studio && <GenerationForm key={formKey(payload)} payload={payload} studio={studio} running={running} run={run} stop={halt} />}
      <ErrorMessage text={stream.error || error} />
      <div class={stream.runs.length > 1 ? "generation-columns" : "generation-alone"}>
        {stream.runs.map((one, number) => (
          <Column key={number} prompt={prompt} run={one} running={running} {...(studio && { branch })} />
        ))}
      </div>
    </>
  );
}

function isEqual(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const sorted = (args: Readonly<Record<string, string>>) => JSON.stringify(Object.entries(args).sort());
  return sorted(one) === sorted(other);
}

/** The form is reset when another request is made; a stopped text belongs to the same request. */
function formKey(payload: Generation): string {
  const { tokens: _, b_tokens: __, ...rest } = argumentsOf(payload);
  return JSON.stringify(rest);
}

function NoModel({ payload: { note, studio } }: { payload: Generation }) {
  const { parameters } = currentRoute.use();
  return (
    <>
      <p>{note}</p>
      {studio?.writers.length ? (
        <p>
          Models that generate text: <ModelLinks names={studio.writers} view={NAME} parameters={parameters} />
        </p>
      ) : (
        <p>
          None of the studio's models generates text. Start the studio with a GPT or a T5, <code>regard studio --model DIR</code>, or train one first:{" "}
          <code>regard pretrain gpt --corpus FILES --output DIR</code>.
        </p>
      )}
    </>
  );
}

const setting = (name: string): Field => ({ name, label: name.replace("b_", "second ").replace("_", "-"), start: "", optional: true });

export const generation: View<Generation> = {
  name: NAME,
  title: "Generation",
  about: "Continue a prompt and see, token by token, what the model could have written instead.",
  model: true,
  kinds: ["writer"],
  ownForm: true,
  submitLabel: "Run",
  fields: [
    { name: "prompt", label: "Prompt", lines: 3, start: "This is a story about me and my brothers" },
    ...[...SETTINGS, "second", "b_model", ...SETTINGS.map((name) => `b_${name}`)].map(setting),
  ],
  Show,
  drawing,
  table,
};

interface Props {
  readonly payload: Generation;
  readonly studio: StudioInfo;
  readonly running: boolean;
  run(args: Readonly<Record<string, string>>): void;
  stop(): void;
}

const KEYS = "Enter starts a new line, Ctrl+Enter runs.";
const SEEDS = 10_000; // "Another text" picks one of these

export function GenerationForm({ payload, studio, running, run, stop }: Props) {
  const [prompt, setPrompt] = useState(payload.prompt);
  const [columns, setColumns] = useState<readonly ColumnValues[]>(payload.runs.map(columnValues));
  const [first, second] = columns;
  const random = columns.some(isRandom);
  const anotherText = () => {
    const step = 1 + Math.floor(Math.random() * (SEEDS - 1)); // never the same seed
    const seed = String((Number(first!.seed) + step) % SEEDS);
    const next = columns.map((column) => ({ ...column, seed }));
    setColumns(next);
    run(toArguments(prompt, next));
  };
  const submit = (event: Event) => {
    event.preventDefault();
    run(toArguments(prompt, columns));
  };
  return (
    <form class="generation-form" aria-label="Prompt and settings" onSubmit={submit}>
      <div class="generation-prompt">
        <label class="field">
          <span>Prompt</span>
          <textarea
            name="generation-prompt"
            rows={3}
            dir="auto"
            spellcheck={false}
            title={KEYS}
            aria-describedby="generation-keys"
            value={prompt}
            onInput={(event) => setPrompt(event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit(event)}
          />
        </label>
        <Select
          class="field model"
          label="Prompt list"
          empty="your own"
          options={Object.keys(studio.prompts)}
          value={Object.keys(studio.prompts).find((name) => studio.prompts[name] === prompt) ?? ""}
          onSelect={(name) => setPrompt(studio.prompts[name] ?? prompt)}
        />
      </div>
      <p id="generation-keys" class="muted generation-hint">
        {KEYS}
      </p>
      <div class={second ? "generation-columns" : ""}>
        {columns.map((column, number) => (
          <SettingFields
            key={number}
            legend={second ? (number ? "Second text" : "First text") : ""}
            values={column}
            studio={studio}
            change={(changes) => setColumns(columns.map((one, at) => (at === number ? { ...one, ...changes } : one)))}
          />
        ))}
      </div>
      <div class="generation-buttons">
        <button type="submit" class="main" title="Ctrl+Enter in the prompt">
          Run
        </button>
        <button type="button" onClick={stop} disabled={!running}>
          Stop
        </button>
        <button type="button" onClick={anotherText} disabled={!random} title={random ? "the same with another seed" : "beam search and temperature 0 always give the same text"}>
          Another text
        </button>
        <label>
          <input type="checkbox" checked={!!second} onChange={(event) => setColumns(event.currentTarget.checked ? [first!, first!] : [first!])} /> two side by side
        </label>
      </div>
    </form>
  );
}

interface SettingFieldsProps {
  readonly legend: string;
  readonly values: ColumnValues;
  readonly studio: StudioInfo;
  change(changes: Partial<ColumnValues>): void;
}

function SettingFields({ legend, values, studio, change }: SettingFieldsProps) {
  const searching = Number(values.beam) > 0;
  const suffix = legend && ` (${legend.toLowerCase()})`;
  const attributes = (name: SettingName, limits: object, disabled: boolean) => ({
    ...limits,
    disabled,
    value: values[name],
    onInput: (event: { currentTarget: HTMLInputElement }) => change({ [name]: event.currentTarget.value }),
  });
  const number = (name: SettingName, label: string, limits: { min: number; max?: number; step: number }, disabled = false) => (
    <label class="generation-number">
      <span>{label}</span>
      <input type="number" name={name} aria-label={label + suffix} required {...attributes(name, limits, disabled)} />
    </label>
  );
  const slider = (name: SettingName, label: string, limits: { min: number; max: number; step: number }) => (
    <div class="generation-slider">
      {number(name, label, limits, searching)}
      <input type="range" aria-label={`${label}, slider${suffix}`} {...attributes(name, limits, searching)} />
    </div>
  );
  return (
    <fieldset class="generation-settings">
      {legend && <legend>{legend}</legend>}
      <Select
        class="generation-number generation-model"
        label="Model"
        ariaLabel={`Model${suffix}`}
        options={[...new Set([values.model, ...studio.writers])]}
        value={values.model}
        onSelect={(model) => change({ model })}
      />
      {slider("top_p", "Top-p", { min: 0.01, max: 1, step: 0.01 })}
      {slider("temperature", "Temperature", { min: 0, max: 2, step: 0.05 })}
      {number("tokens", "Tokens", { min: 1, max: studio.most_tokens, step: 1 })}
      {number("seed", "Seed", { min: 0, step: 1 }, searching)}
      {number("beam", "Beam (0: sampling)", { min: 0, max: studio.most_beam, step: 1 })}
      {number("top_k", "Top-k (0: all)", { min: 0, step: 1 }, searching)}
      {number("min_p", "Min-p", { min: 0, max: 1, step: 0.01 }, searching)}
      {number("repetition", "Repetition penalty", { min: 0.1, max: 10, step: 0.05 }, searching)}
    </fieldset>
  );
}
