// Generation: a model continues a prompt, token by token, with the alternatives at every position.
import { useState } from "preact/hooks";
import { act, inStudio, modelsThatCan } from "../api";
import { ErrorMessage, Select } from "../components";
import { percent, quoted } from "../format";
import { navigate } from "../route";
import { thumbnails } from "../thumbnails";
import type { Arguments, Field, View } from "../view";
import { Column, drawing, table } from "./generation/column";
import "./generation/generation.css";
import type { ChatMessage } from "../types";
import {
  type ColumnValues,
  chatArguments,
  columnsOf,
  conversation,
  type Generation,
  isRandom,
  load,
  type Run,
  SETTINGS,
  type SettingName,
  toArguments,
} from "./generation/payload";

const NAME = "generation";
const MAX_TOKENS = 400;
const MAX_BEAMS = 16;

/** From the lectures. */
const PROMPTS: Readonly<Record<string, string>> = {
  "A story": "This is a story about me and my brothers",
  "The first law of robotics": "Recite the first law of robotics",
  "Questions and answers":
    "Q: What is your favorite animal?\n\nA: My favorite animal is a dog.\n\nQ: Why?\n\n" +
    "A: Because dogs are loyal and friendly.\n\nQ: How many eyes does a giraffe have?\n\nA:",
  "Animals with three legs":
    "Q: How many legs does a frog have?\n\nA: A frog has four legs.\n\nQ: Are there any animals with three legs?\n\nA:",
  "An essay for a newspaper":
    "Please write a short op-ed around 500 words. Keep the language simple and concise. Focus on why humans have " +
    "nothing to fear from AI.",
  "The essay, begun": "I am not a human. I am a robot. A thinking robot. I use only 0.12% of my cognitive capacity.",
  "A cloud below the window":
    "Input: Jennifer looked out her window and sees a really cool cloud below her. She unbuckles her seatbelt and " +
    "heads to the bathroom. Is Jennifer probably traveling more than 300 miles per hour relative to the " +
    "earth?\n\nModel Output:",
};

const CAVEAT =
  "Read with care. A language model writes what is likely after your prompt, judged by the texts it was trained on; " +
  "nothing in it checks whether that is true, fair or meant. Critics call such models stochastic parrots: they put " +
  "forms together by chance and frequency, without regard to what the forms mean. And as in Searle's Chinese room, " +
  "answers that look right do not show that anything behind them understands; what would show it is disputed.";

/** By the arguments of texts that the user stopped, which of them; each is the result of a request for fewer tokens. */
const stopped = new Map<string, readonly boolean[]>();

const keyOf = (args: Arguments) =>
  JSON.stringify(
    Object.entries(args)
      .filter(([, value]) => value)
      .sort(),
  );

function argumentsOf({ runs }: Generation): Record<string, string> {
  const values = ({ settings, model }: Run) =>
    ({
      ...Object.fromEntries(SETTINGS.map((name) => [name, String(settings[name] ?? 0)])),
      model,
    }) as unknown as ColumnValues;
  const messages = runs[0]?.messages;
  return { ...toArguments(runs[0]?.prompt ?? "", runs.map(values)), ...(messages && chatArguments(messages)) };
}

function Show({ payload }: { payload: Generation }) {
  const [error, setError] = useState("");
  const args = argumentsOf(payload);
  const running = payload.runs.some((run) => run.running);
  const run = (next: Arguments) => {
    setError("");
    navigate({ view: NAME, parameters: { ...next } }, { push: true });
  };
  // A stopped text is the result of a request for fewer tokens, which becomes the route.
  const stop = () => {
    const counts = payload.runs.map((one) =>
      one.running ? String(Math.max(1, one.progress?.done ?? one.tokens.length)) : String(one.settings.max_new_tokens),
    );
    const columns = columnsOf(args).map((column, number) => ({ ...column, max_new_tokens: counts[number]! }));
    const shorter = { ...args, ...toArguments(args["prompt"] ?? "", columns) };
    stopped.set(
      keyOf(shorter),
      payload.runs.map((one) => !!one.running),
    );
    navigate({ view: NAME, parameters: shorter });
  };
  const branch = (from: Run, ids: readonly number[]) => {
    setError("");
    act("branch", { model: from.model, prompt: from.prompt, ids }).then(
      // The prompt of a chat is the text that the template made, which is continued as it is.
      ({ prompt }) => run({ ...args, prompt, chat: "", system: "" }),
      (problem: Error) => setError(problem.message),
    );
  };
  const wasStopped = stopped.get(keyOf(args));
  return (
    <div class="generation">
      {inStudio() && (
        <GenerationForm
          key={formKey(args)}
          initial={args}
          messages={conversation(payload.runs[0]!)}
          running={running}
          run={run}
          stop={stop}
        />
      )}
      <ErrorMessage text={error} />
      <Conversation messages={payload.runs[0]!.messages ?? []} />
      <div class={payload.runs.length > 1 ? "generation-columns" : "generation-alone"}>
        {payload.runs.map((one, number) => (
          <Column
            key={number}
            run={{ ...one, stopped: wasStopped?.[number] ?? false }}
            {...(inStudio() && { branch })}
          />
        ))}
      </div>
      <p class="generation-caveat">{CAVEAT}</p>
    </div>
  );
}

/** The messages of a chat; the answer is below, with its candidates. */
function Conversation({ messages }: { messages: readonly ChatMessage[] }) {
  if (!messages.length) return null;
  return (
    <ol class="generation-chat" aria-label="Messages">
      {messages.map(({ role, content }, number) => (
        <li key={number} class={role === "user" ? "generation-user" : ""}>
          <span class="muted">{role}</span>
          <p dir="auto">{content}</p>
        </li>
      ))}
    </ol>
  );
}

/** The form is reset when another request is made; a stopped text belongs to the same request. */
function formKey(args: Arguments): string {
  const { max_new_tokens: _, b_max_new_tokens: __, ...rest } = args;
  return JSON.stringify(rest);
}

const setting = (name: string): Field => ({
  name,
  label: name.replace("b_", "second ").replace("_", "-"),
  start: "",
  optional: true,
});

export const generation: View<Generation> = {
  name: NAME,
  title: "Generation",
  about: "Continue a prompt and see, token by token, what the model could have written instead.",
  group: "predict",
  examples: [
    { label: "A story", values: { prompt: PROMPTS["A story"]! } },
    {
      label: "Always the likeliest token",
      values: { prompt: "The animal did not cross the street because it was", temperature: "0", max_new_tokens: "30" },
    },
    { label: "Hot: temperature 1.5", values: { prompt: PROMPTS["A story"]!, temperature: "1.5", top_p: "1" } },
    { label: "Beam search", values: { prompt: PROMPTS["A story"]!, num_beams: "4", max_new_tokens: "20" } },
    { label: "A question", values: { prompt: PROMPTS["Questions and answers"]!, max_new_tokens: "30" } },
  ],
  travels: { text: "prompt" },
  Thumbnail: thumbnails.generation,
  finding: ({ runs: [run] }) => {
    if (!run || run.running || run.method === "beam" || !run.tokens.length) return "";
    const words = run.tokens.filter(({ text }) => text.trim());
    if (!words.length) return "";
    const chances = words.map(({ id, text, candidates }) => ({
      text: text.trim(),
      probability: candidates.find((one) => one.token === id)?.probability ?? 1,
    }));
    const [least, most] = [
      chances.reduce((a, b) => (b.probability < a.probability ? b : a)),
      chances.reduce((a, b) => (b.probability > a.probability ? b : a)),
    ];
    return (
      `${run.model} is surest of ${quoted(most.text)} (${percent(most.probability)}) and least sure of ` +
      `${quoted(least.text)} (${percent(least.probability)})`
    );
  },
  verb: "generate",
  needs: {
    capability: "text-generation",
    without: "does not generate text: it cannot continue a prompt.",
    models: "Models that generate text",
    advice:
      "None of the studio's models generates text. Start the studio with a GPT or a T5, regard studio --model " +
      "DIR, or train one first: " +
      "regard pretrain gpt --corpus FILES --output DIR.",
  },
  ownForm: true,
  submitLabel: "Run",
  fields: [
    { name: "prompt", label: "Prompt", lines: 3, start: PROMPTS["A story"]! },
    ...["chat", "system", ...SETTINGS, "second", "b_model", ...SETTINGS.map((name) => `b_${name}`)].map(setting),
  ],
  load,
  Show,
  drawing,
  table,
};

interface Props {
  readonly initial: Arguments;
  /** Of a chat, with the answer. */
  readonly messages: readonly ChatMessage[];
  readonly running: boolean;
  run(args: Arguments): void;
  stop(): void;
}

const KEYS = "Enter starts a new line, Ctrl+Enter runs.";
const SEEDS = 10_000; // "Another text" picks one of these

function GenerationForm({ initial, messages, running, run, stop }: Props) {
  const [chat, setChat] = useState(!!initial["chat"]);
  const [system, setSystem] = useState(initial["system"] ?? "");
  const [fresh, setFresh] = useState(!initial["chat"]); // no messages yet
  const [prompt, setPrompt] = useState(initial["chat"] ? "" : (initial["prompt"] ?? ""));
  const [columns, setColumns] = useState(columnsOf(initial));
  const [first, second] = columns;
  const random = columns.some(isRandom);
  const change = (number: number, changes: Partial<ColumnValues>) =>
    setColumns(columns.map((one, at) => (at === number ? { ...one, ...changes } : one)));
  const anotherText = () => {
    const step = 1 + Math.floor(Math.random() * (SEEDS - 1)); // never the same seed
    const seed = String((Number(first!.seed) + step) % SEEDS);
    const next = columns.map((column) => ({ ...column, seed }));
    setColumns(next);
    run(chat && !fresh ? { ...initial, seed } : request(next));
  };
  const request = (values: readonly ColumnValues[]): Arguments => {
    if (!chat) return toArguments(prompt, values);
    const before = fresh ? [] : messages.filter(({ role }) => role !== "system");
    const all = [
      ...(system ? [{ role: "system", content: system }] : []),
      ...before,
      { role: "user", content: prompt },
    ];
    return { ...toArguments(prompt, values), ...chatArguments(all) };
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (!chat || prompt) run(request(columns));
  };
  return (
    <form class="generation-form" aria-label="Prompt and settings" onSubmit={submit}>
      <div class="generation-prompt">
        <label class="field">
          <span>{chat ? "Message" : "Prompt"}</span>
          <textarea
            name="generation-prompt"
            rows={2}
            dir="auto"
            spellcheck={false}
            title={KEYS}
            aria-describedby="generation-keys"
            value={prompt}
            onInput={(event) => setPrompt(event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit(event)}
          />
        </label>
        <ModelSelect
          class="field model"
          suffix={second ? " (first text)" : ""}
          value={first!.model}
          onSelect={(model) => change(0, { model })}
        />
      </div>
      {chat && (
        <label class="field">
          <span>System message</span>
          <input
            type="text"
            name="system"
            dir="auto"
            value={system}
            onInput={(event) => setSystem(event.currentTarget.value)}
          />
        </label>
      )}
      <p id="generation-keys" class="muted generation-hint">
        {KEYS}
      </p>
      <div class="generation-buttons">
        <button type="submit" class="main" title="Ctrl+Enter in the prompt">
          Run
        </button>
        <button type="button" onClick={stop} disabled={!running}>
          Stop
        </button>
        <button
          type="button"
          onClick={anotherText}
          disabled={!random}
          title={random ? "the same with another seed" : "beam search and temperature 0 always give the same text"}
        >
          Another text
        </button>
        {chat && !fresh && (
          <button type="button" onClick={() => setFresh(true)} title="the next message begins a conversation">
            New chat
          </button>
        )}
        <label title="the model's chat template makes a prompt of the messages">
          <input type="checkbox" checked={chat} onChange={(event) => setChat(event.currentTarget.checked)} /> chat
        </label>
        <label>
          <input
            type="checkbox"
            checked={!!second}
            onChange={(event) => setColumns(event.currentTarget.checked ? [first!, first!] : [first!])}
          />{" "}
          two side by side
        </label>
      </div>
      <details class="generation-folded" {...(second && { open: true })}>
        <summary>
          Settings:{" "}
          {Number(first!.num_beams) > 1
            ? `${first!.num_beams} beams`
            : `temperature ${first!.temperature}, top-p ${first!.top_p}, seed ${first!.seed}`}
          , {first!.max_new_tokens} tokens
        </summary>
        <div class={second ? "generation-columns" : ""}>
          {columns.map((column, number) => (
            <SettingFields
              key={number}
              legend={second ? (number ? "Second text" : "First text") : ""}
              values={column}
              withModel={number > 0}
              change={(changes) => change(number, changes)}
            />
          ))}
        </div>
        <Select
          class="generation-number"
          label="Prompt list"
          empty="your own"
          options={Object.keys(PROMPTS)}
          value={Object.keys(PROMPTS).find((name) => PROMPTS[name] === prompt) ?? ""}
          onSelect={(name) => setPrompt(PROMPTS[name] ?? prompt)}
        />
      </details>
    </form>
  );
}

interface SettingFieldsProps {
  readonly legend: string;
  readonly values: ColumnValues;
  /** Whether the model is one of the settings; that of the first text is beside the prompt. */
  readonly withModel: boolean;
  change(changes: Partial<ColumnValues>): void;
}

function ModelSelect({
  class: className,
  suffix,
  value,
  onSelect,
}: {
  class: string;
  suffix: string;
  value: string;
  onSelect(model: string): void;
}) {
  return (
    <Select
      class={className}
      label="Model"
      ariaLabel={`Model${suffix}`}
      options={[...new Set([value, ...modelsThatCan("text-generation")])]}
      value={value}
      onSelect={onSelect}
    />
  );
}

function SettingFields({ legend, values, withModel, change }: SettingFieldsProps) {
  const searching = Number(values.num_beams) > 1;
  const suffix = legend && ` (${legend.toLowerCase()})`;
  const attributes = (name: SettingName, limits: object, disabled: boolean) => ({
    ...limits,
    disabled,
    value: values[name],
    onInput: (event: { currentTarget: HTMLInputElement }) => change({ [name]: event.currentTarget.value }),
  });
  const number = (
    name: SettingName,
    label: string,
    limits: { min: number; max?: number; step: number },
    disabled = false,
  ) => (
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
      {withModel && (
        <ModelSelect
          class="generation-number generation-model"
          suffix={suffix}
          value={values.model}
          onSelect={(model) => change({ model })}
        />
      )}
      {slider("top_p", "Top-p", { min: 0.01, max: 1, step: 0.01 })}
      {slider("temperature", "Temperature", { min: 0, max: 2, step: 0.05 })}
      {number("max_new_tokens", "Tokens", { min: 1, max: MAX_TOKENS, step: 1 })}
      {number("seed", "Seed", { min: 0, step: 1 }, searching)}
      {number("num_beams", "Beams (1: sampling)", { min: 1, max: MAX_BEAMS, step: 1 })}
      {number("top_k", "Top-k (0: all)", { min: 0, step: 1 }, searching)}
      {number("min_p", "Min-p", { min: 0, max: 1, step: 0.01 }, searching)}
      {number("repetition_penalty", "Repetition penalty", { min: 0.1, max: 10, step: 0.05 }, searching)}
    </fieldset>
  );
}
