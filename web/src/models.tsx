// The studio's models: which one a view starts with, their states, and what each is suited for.
import { useEffect } from "preact/hooks";
import { type Capability, can, refreshModels, studioModels } from "./api";
import { ModelLinks } from "./components";
import { currentRoute } from "./route";
import type { ModelState } from "./types";
import type { View } from "./view";

const POLL = 400; // milliseconds

/** The studio's models, updated while one of them is being loaded. */
export function useModels(): readonly ModelState[] {
  const models = studioModels.use() ?? [];
  const loading = models.some((model) => model.state === "loading");
  useEffect(() => {
    if (!loading) return;
    // the next request reports the error
    const timer = setInterval(() => void refreshModels().catch(() => undefined), POLL);
    return () => clearInterval(timer);
  }, [loading]);
  return models;
}

export const takesImages = (model: ModelState | undefined) => model?.capabilities?.includes("image") ?? false;

export const translates = (model: ModelState | undefined) => model?.capabilities?.includes("translation") ?? false;

export function suits({ needs, excludes }: View, model: ModelState): boolean {
  return (
    (!needs || can(model, needs.capability)) &&
    !excludes?.some((capability) => model.capabilities?.includes(capability))
  );
}

/** The model a view starts with: that of its first example, or the first that can do what the view prefers. */
export function defaultModel(view: View, models: readonly ModelState[]): string {
  const usable = models.filter((model) => model.state !== "failed");
  const suited = usable
    .filter((model) => suits(view, model))
    .sort((a, b) => Number(takesImages(a)) - Number(takesImages(b))); // texts first
  const example = suited.find((model) => model.name === view.examples?.[0]?.model);
  const does = (model: ModelState, what: string) =>
    model.task === what || model.capabilities?.includes(what as Capability);
  const preferred = (view.prefers ?? [])
    .map((what) => suited.find((model) => does(model, what)))
    .find((model) => model);
  return (example ?? preferred ?? suited[0] ?? usable[0] ?? models[0])?.name ?? "";
}

/** What a model suits, in words: its own, or what follows from its capabilities. */
export function describeModel({ description, capabilities, task }: ModelState): string {
  if (description) return description;
  if (capabilities === null) return "from the hub; what it can do is known once it is loaded";
  const has = (...names: readonly string[]) => names.some((name) => capabilities.includes(name as never));
  if (task) return `fine-tuned: ${task}`;
  if (has("translation"))
    return `translates sentences with ${has("recurrent") ? "a recurrent network and attention" : "a Transformer"}`;
  if (has("image")) return "reads images";
  if (has("sentence-embedding")) return "compares sentences: search, clusters, maps";
  if (has("masked-lm")) return "reads a text in both directions and fills in blanks";
  if (has("text-generation", "causal-lm")) return "reads from left to right and continues a text";
  return "turns a text into vectors";
}

/** Every model with its state and what it suits. */
export function ModelStates({ models }: { models: readonly ModelState[] }) {
  return (
    <ul class="states" aria-label="Models" aria-live="polite">
      {models.map((model) => (
        <li key={model.name} class={model.state}>
          <span class="dot" aria-hidden="true" /> <strong>{model.name}</strong>{" "}
          {model.state !== "ready" && <span>{model.state === "loading" ? "is loading …" : model.state}</span>}
          <span class="muted"> {describeModel(model)}</span>
          {model.error && <p class="error">{model.error}</p>}
        </li>
      ))}
    </ul>
  );
}

/** Why a model cannot be shown in a view, and those that can. */
export function Unsuited({ view, name, models }: { view: View; name: string; models: readonly ModelState[] }) {
  const { capability, without, models: title, advice } = view.needs!;
  const names = models.filter((model) => can(model, capability)).map((model) => model.name);
  return (
    <div class="unsuited">
      <p>
        {name} {without}
      </p>
      <p>
        {names.length ? (
          <>
            {title}: <ModelLinks names={names} view={view.name} parameters={currentRoute.get().parameters} />
          </>
        ) : (
          advice
        )}
      </p>
    </div>
  );
}
