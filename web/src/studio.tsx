// The studio: choose a view, say its arguments, see what the model does. Knows the server and the list of views.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, models as fetchModels, sendPicture, type Model } from "./api";
import { Frame } from "./export_panel";
import { modelsChanged } from "./api";
import { navigate, currentRoute } from "./route";
import { ThemeSwitch } from "./theme";
import type { Payload, View } from "./view";
import { views } from "./views";

type Arguments = Readonly<Record<string, string>>;
type Answer = { state: "waiting" } | { state: "failed"; error: string } | { state: "done"; payload: Payload; args: Arguments };

const asked = views.filter((view) => view.fields.length); // the others show what the command line found
const LINES = 2; // of a box in which Enter asks
const PAUSE = 400; // milliseconds between looks at models that are being loaded

export function Studio({ models: first }: { models: readonly Model[] }) {
  const [models, refresh] = useModels(first);
  const here = currentRoute.use();
  const view = asked.find((one) => one.name === here.view) ?? asked[0]!;
  useEffect(() => {
    document.title = `Regard: ${view.title}`;
  }, [view]);
  return (
    <>
      <header class="top">
        <h1>Regard</h1>
        <nav aria-label="Views">
          {asked.map((one) => (
            <a key={one.name} href={`#${one.name}`} {...(one === view && { "aria-current": "page" as const })}>
              {one.title}
            </a>
          ))}
        </nav>
        <ThemeSwitch />
      </header>
      <main>
        <p class="about">{view.about}</p>
        <States models={models} />
        <Asked key={view.name} view={view} models={models} answered={refresh} />
      </main>
    </>
  );
}

function useModels(first: readonly Model[]): readonly [readonly Model[], () => void] {
  const [models, set] = useState(first);
  const changes = modelsChanged.use();
  const pending = models.some((model) => model.state === "loading");
  const look = () => void fetchModels().then(set, () => undefined); // the next question says what is wrong
  useEffect(() => {
    if (!pending) return;
    const timer = setInterval(look, PAUSE);
    return () => clearInterval(timer);
  }, [pending]);
  useEffect(() => void (changes && look()), [changes]);
  return [models, look];
}

function States({ models }: { models: readonly Model[] }) {
  return (
    <ul class="states" aria-label="Models" aria-live="polite">
      {models.map((model) => (
        <li key={model.name} class={model.state}>
          <span class="dot" aria-hidden="true" /> {model.name}{" "}
          <span class="muted">{model.state === "loading" ? "is loading …" : model.state}</span>
          {model.error && <p class="error">{model.error}</p>}
        </li>
      ))}
    </ul>
  );
}

/** The form of a view and the answer to it. The address holds what was asked, so a link asks the same again. */
function Asked({ view, models, answered }: { view: View; models: readonly Model[]; answered: () => void }) {
  const { parameters } = currentRoute.use();
  const begun = useRef(""); // stays once it is there: a new model must not take the place of what is looked at
  if (!models.some((one) => one.name === begun.current && one.state === "ready")) begun.current = usual(view, models);
  const model = parameters["model"] ?? begun.current;
  const args = useMemo(() => {
    const said: Record<string, string> = view.model ? { model } : {};
    const fresh = !view.fields.some((field) => field.name in parameters);
    for (const field of view.fields) said[field.name] = parameters[field.name] ?? (fresh ? field.start : "");
    return said;
  }, [view, model, ...view.fields.map((field) => parameters[field.name])]);
  const chosen = models.find((one) => one.name === model);
  const loading = view.model && chosen?.state === "loading";
  const blind = !loading && chosen?.sees && view.fields.some((field) => field.picture && !args[field.name]);
  const [answer, setAnswer] = useState<Answer>({ state: "waiting" });
  const [turn, again] = useState(0);
  useEffect(() => {
    if (loading || blind) return setAnswer({ state: "waiting" });
    const stop = new AbortController();
    setAnswer((before) => (before.state === "done" ? before : { state: "waiting" }));
    const failed = models.some((one) => one.name === model && one.state === "failed");
    ask(view.name, args, stop.signal)
      .then(
        (payload) => setAnswer({ state: "done", payload, args }),
        (error: Error) => error.name === "AbortError" || setAnswer({ state: "failed", error: error.message }),
      )
      .then(() => failed && answered()); // it was tried again: it may be there now
    return () => stop.abort();
  }, [view, args, loading, blind, turn]);
  const submit = (next: Arguments) => {
    // Layer, head and the like stay; what is locked was a token of the old text.
    const { lock: _, ...kept } = currentRoute.get().parameters;
    navigate({ view: view.name, parameters: { ...kept, ...next } }, { step: true });
    again(turn + 1);
  };
  const busy = answer.state === "waiting" || (answer.state === "done" && answer.args !== args);
  return (
    <>
      {(!view.form || answer.state === "failed") && <Form key={JSON.stringify(args)} view={view} models={models} args={args} submit={submit} refused={answer.state === "failed"} />}
      <p role="status" class="muted busy">
        {blind ? `${model} looks at pictures: choose one.` : busy ? (loading ? `Waiting for ${model} …` : "Computing …") : ""}
      </p>
      {answer.state === "failed" && (
        <p role="alert" class="error">
          {answer.error}
        </p>
      )}
      {answer.state === "done" && (
        <div aria-busy={busy}>
          <Frame view={view} payload={answer.payload} args={answer.args} />
        </div>
      )}
    </>
  );
}

/** The model that a view begins with: the first of the kind that it shows best, if any such is there. */
function usual(view: View, models: readonly Model[]): string {
  const there = models.filter((model) => model.state !== "failed");
  const kinds = view.suits ?? [];
  const best = kinds.map((kind) => there.find((model) => model.kind === kind)).find((model) => model);
  return (best ?? there.find((model) => suits(view, model)) ?? there[0] ?? models[0])?.name ?? "";
}

function suits(view: View, { kind }: Model): boolean {
  return !view.suits || kind === "unknown" || view.suits.includes(kind);
}

interface FormProps {
  readonly view: View;
  readonly models: readonly Model[];
  readonly args: Arguments;
  /** The question was refused, perhaps for what is chosen inside the view: then that must be seen here. */
  readonly refused: boolean;
  submit(args: Arguments): void;
}

function Form({ view, models, args, refused, submit }: FormProps) {
  const [said, say] = useState(args);
  const enter = (event: KeyboardEvent, lines: number) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (lines > LINES && !event.ctrlKey && !event.metaKey) return; // a box for many lines: Enter begins the next
    event.preventDefault();
    submit(said);
  };
  const sees = models.find((model) => model.name === said["model"])?.sees ?? false;
  const pictured = view.fields.some((field) => field.picture);
  const fields = view.fields.filter((field) => (!field.hidden || (refused && args[field.name])) && (!pictured || (field.picture ?? false) === sees));
  const choices = models.filter((model) => model.name === said["model"] || suits(view, model)).map((model) => model.name);
  return (
    <form
      class="ask"
      onSubmit={(event) => {
        event.preventDefault();
        submit(said);
      }}
    >
      {fields.map((field) =>
        field.picture ? (
          <PictureChoice key={field.name} label={field.label} sent={said[field.name] ?? ""} use={(image) => submit({ ...said, [field.name]: image })} />
        ) : field.model ? (
          <ModelChoice key={field.name} name={field.name} label={field.label} models={["", ...choices]} said={said} say={say} />
        ) : (
          <label key={field.name} class={field.optional ? "field optional" : "field"}>
            <span>{field.label}</span>
            <textarea
              name={field.name}
              rows={field.lines ?? 1}
              dir="auto"
              spellcheck={false}
              value={said[field.name] ?? ""}
              onInput={(event) => say({ ...said, [field.name]: event.currentTarget.value })}
              onKeyDown={(event) => enter(event, field.lines ?? 1)}
            />
          </label>
        ),
      )}
      {view.model && <ModelChoice name="model" label="Model" models={choices} said={said} say={say} />}
      <button type="submit" class="main">
        {view.verb ?? "Look"}
      </button>
    </form>
  );
}

/** A picture of the user's: it is sent when it is chosen, and asked about at once. */
function PictureChoice({ label, sent, use }: { label: string; sent: string; use(image: string): void }) {
  const [wrong, tell] = useState("");
  const send = (file: File | undefined) => {
    tell("");
    if (file) sendPicture(file).then(use, (error: Error) => tell(error.message));
  };
  return (
    <div class="field">
      <label>
        <span>{label}</span>
        <input type="file" accept="image/png,image/jpeg" onChange={(event) => send(event.currentTarget.files?.[0])} />
      </label>
      {sent && <span class="muted">{sent.slice(sent.indexOf("/") + 1)}</span>}
      {wrong && (
        <p role="alert" class="error">
          {wrong}
        </p>
      )}
    </div>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly label: string;
  readonly models: readonly string[];
  readonly said: Arguments;
  say(args: Arguments): void;
}

function ModelChoice({ name, label, models, said, say }: ChoiceProps) {
  return (
    <label class="field model">
      <span>{label}</span>
      <select name={name} value={said[name] ?? ""} onChange={(event) => say({ ...said, [name]: event.currentTarget.value })}>
        {models.map((model) => (
          <option key={model} value={model}>
            {model || "none"}
          </option>
        ))}
      </select>
    </label>
  );
}
