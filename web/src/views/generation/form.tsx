// What is to be written: the prompt, the list of prompts, and the settings of one or two columns. Knows no server.
import { useState } from "preact/hooks";
import { asked, byChance, columnOf, type Column, type Generation, type Setting, type Studio } from "./payload";

interface Props {
  readonly payload: Generation;
  readonly studio: Studio;
  readonly running: boolean;
  run(args: Readonly<Record<string, string>>): void;
  stop(): void;
}

const KEYS = "Enter begins a new line, Ctrl+Enter runs.";
const SEEDS = 10_000; // one of so many is taken for another text

export function Ask({ payload, studio, running, run, stop }: Props) {
  const [prompt, setPrompt] = useState(payload.prompt);
  const [columns, setColumns] = useState<readonly Column[]>(payload.runs.map(columnOf));
  const [first, second] = columns;
  const change = (number: number, changes: Partial<Column>) =>
    setColumns(columns.map((column, at) => (at === number ? { ...column, ...changes } : column)));
  const chance = columns.some(byChance);
  const another = () => {
    const step = 1 + Math.floor(Math.random() * (SEEDS - 1)); // never to the same seed
    const seed = String((Number(first!.seed) + step) % SEEDS);
    const next = columns.map((column) => ({ ...column, seed }));
    setColumns(next);
    run(asked(prompt, next));
  };
  return (
    <form
      class="generation-form"
      aria-label="What to write"
      onSubmit={(event) => {
        event.preventDefault();
        run(asked(prompt, columns));
      }}
    >
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
            onKeyDown={(event) => {
              if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
              event.preventDefault();
              run(asked(prompt, columns));
            }}
          />
        </label>
        <label class="field model">
          <span>Prompt list</span>
          <select
            aria-label="Prompt list"
            value={Object.keys(studio.prompts).find((name) => studio.prompts[name] === prompt) ?? ""}
            onChange={(event) => setPrompt(studio.prompts[event.currentTarget.value] ?? prompt)}
          >
            <option value="">your own</option>
            {Object.keys(studio.prompts).map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      <p id="generation-keys" class="muted generation-hint">
        {KEYS}
      </p>
      <div class={second ? "generation-columns" : ""}>
        {columns.map((column, number) => (
          <Settings
            key={number}
            legend={second ? (number ? "Second text" : "First text") : ""}
            column={column}
            studio={studio}
            change={(changes) => change(number, changes)}
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
        <button type="button" onClick={another} disabled={!chance} title={chance ? "the same with another seed" : "a beam, or temperature 0, always gives the same text"}>
          Another text
        </button>
        <label>
          <input type="checkbox" checked={!!second} onChange={(event) => setColumns(event.currentTarget.checked ? [first!, first!] : [first!])} /> two side by side
        </label>
      </div>
    </form>
  );
}

interface SettingsProps {
  readonly legend: string;
  readonly column: Column;
  readonly studio: Studio;
  change(changes: Partial<Column>): void;
}

function Settings({ legend, column, studio, change }: SettingsProps) {
  const searching = Number(column.beam) > 0;
  const about = legend && ` (${legend.toLowerCase()})`;
  const number = (name: Setting, label: string, limits: { min: number; max?: number; step: number }, off = false) => (
    <label class="generation-number">
      <span>{label}</span>
      <input
        type="number"
        name={name}
        aria-label={label + about}
        required
        {...limits}
        disabled={off}
        value={column[name]}
        onInput={(event) => change({ [name]: event.currentTarget.value })}
      />
    </label>
  );
  const slider = (name: Setting, label: string, limits: { min: number; max: number; step: number }) => (
    <div class="generation-slider">
      {number(name, label, limits, searching)}
      <input
        type="range"
        aria-label={`${label}, slider${about}`}
        {...limits}
        disabled={searching}
        value={column[name]}
        onInput={(event) => change({ [name]: event.currentTarget.value })}
      />
    </div>
  );
  return (
    <fieldset class="generation-settings">
      {legend && <legend>{legend}</legend>}
      <label class="generation-number generation-model">
        <span>Model</span>
        <select aria-label={`Model${about}`} value={column.model} onChange={(event) => change({ model: event.currentTarget.value })}>
          {[...new Set([column.model, ...studio.writers])].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {slider("top_p", "Top-p", { min: 0.01, max: 1, step: 0.01 })}
      {slider("temperature", "Temperature", { min: 0, max: 2, step: 0.05 })}
      {number("tokens", "Tokens", { min: 1, max: studio.most_tokens, step: 1 })}
      {number("seed", "Seed", { min: 0, step: 1 }, searching)}
      {number("beam", "Beam (0: by chance)", { min: 0, max: studio.most_beam, step: 1 })}
      {number("top_k", "Top-k (0: all)", { min: 0, step: 1 }, searching)}
      {number("min_p", "Min-p", { min: 0, max: 1, step: 0.01 }, searching)}
      {number("repetition", "Repetition penalty", { min: 0.1, max: 10, step: 0.05 }, searching)}
    </fieldset>
  );
}
