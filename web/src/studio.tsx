// The studio: select a view, fill in its form, see the result.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fetchModels, modelsChanged, request, uploadImage, type Model } from "./api";
import { ErrorMessage, Select } from "./components";
import { ViewWithExports } from "./export_panel";
import { currentRoute, navigate } from "./route";
import { ThemeSwitch } from "./theme";
import type { Field, Payload, View } from "./view";
import { views } from "./views";

type Arguments = Readonly<Record<string, string>>;
type Result = { state: "waiting" } | { state: "failed"; error: string } | { state: "done"; payload: Payload; args: Arguments };

const menu = views.filter((view) => view.fields.length); // the other views only show results of the command line
const MAX_SUBMIT_LINES = 2; // in taller text boxes, Enter starts a new line
const POLL = 400; // milliseconds

export function Studio({ models: initial }: { models: readonly Model[] }) {
  const [models, refresh] = useModels(initial);
  const route = currentRoute.use();
  const view = menu.find((one) => one.name === route.view) ?? menu[0]!;
  useEffect(() => {
    document.title = `Regard: ${view.title}`;
  }, [view]);
  return (
    <>
      <header class="top">
        <h1>Regard</h1>
        <nav aria-label="Views">
          {menu.map((one) => (
            <a key={one.name} href={`#${one.name}`} {...(one === view && { "aria-current": "page" as const })}>
              {one.title}
            </a>
          ))}
        </nav>
        <ThemeSwitch />
      </header>
      <main>
        <p class="about">{view.about}</p>
        <ModelStates models={models} />
        <ViewRequest key={view.name} view={view} models={models} onRetried={refresh} />
      </main>
    </>
  );
}

function useModels(initial: readonly Model[]): readonly [readonly Model[], () => void] {
  const [models, setModels] = useState(initial);
  const changes = modelsChanged.use();
  const loading = models.some((model) => model.state === "loading");
  const refresh = () => void fetchModels().then(setModels, () => undefined); // the next request reports the error
  useEffect(() => {
    if (!loading) return;
    const timer = setInterval(refresh, POLL);
    return () => clearInterval(timer);
  }, [loading]);
  useEffect(() => void (changes && refresh()), [changes]);
  return [models, refresh];
}

function ModelStates({ models }: { models: readonly Model[] }) {
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

/** The form of a view and the result of its request. The route holds the arguments, so a link repeats the request. */
function ViewRequest({ view, models, onRetried }: { view: View; models: readonly Model[]; onRetried: () => void }) {
  const { parameters } = currentRoute.use();
  const initial = useRef(""); // stays once set: a new model must not replace the one in use
  if (!models.some((one) => one.name === initial.current && one.state === "ready")) initial.current = defaultModel(view, models);
  const model = parameters["model"] ?? initial.current;
  const args = useMemo(() => {
    const values: Record<string, string> = view.model ? { model } : {};
    const fresh = !view.fields.some((field) => field.name in parameters);
    for (const field of view.fields) values[field.name] = parameters[field.name] ?? (fresh ? field.start : "");
    return values;
  }, [view, model, ...view.fields.map((field) => parameters[field.name])]);
  const selected = models.find((one) => one.name === model);
  const loading = view.model && selected?.state === "loading";
  const needsImage = !loading && selected?.sees && view.fields.some((field) => field.image && !args[field.name]);
  const [result, setResult] = useState<Result>({ state: "waiting" });
  const [submission, setSubmission] = useState(0);
  useEffect(() => {
    if (loading || needsImage) return setResult({ state: "waiting" });
    const controller = new AbortController();
    setResult((before) => (before.state === "done" ? before : { state: "waiting" }));
    const failed = models.some((one) => one.name === model && one.state === "failed");
    request(view.name, args, controller.signal)
      .then(
        (payload) => setResult({ state: "done", payload, args }),
        (error: Error) => error.name === "AbortError" || setResult({ state: "failed", error: error.message }),
      )
      .then(() => failed && onRetried()); // the server tried to load it again
    return () => controller.abort();
  }, [view, args, loading, needsImage, submission]);
  const submit = (next: Arguments) => {
    // Layer, head and the like stay; a locked token belonged to the old text.
    const { lock: _, ...kept } = currentRoute.get().parameters;
    navigate({ view: view.name, parameters: { ...kept, ...next } }, { push: true });
    setSubmission(submission + 1);
  };
  const busy = result.state === "waiting" || (result.state === "done" && result.args !== args);
  const status = needsImage ? `${model} takes images: choose one.` : !busy ? "" : loading ? `Waiting for ${model} …` : "Computing …";
  return (
    <>
      {(!view.ownForm || result.state === "failed") && (
        <Form key={JSON.stringify(args)} view={view} models={models} args={args} submit={submit} failed={result.state === "failed"} />
      )}
      <p role="status" class="muted busy">
        {status}
      </p>
      <ErrorMessage text={result.state === "failed" ? result.error : ""} />
      {result.state === "done" && (
        <div aria-busy={busy}>
          <ViewWithExports view={view} payload={result.payload} args={result.args} />
        </div>
      )}
    </>
  );
}

/** The model a view starts with: the first of the kind it prefers. */
function defaultModel(view: View, models: readonly Model[]): string {
  const usable = models.filter((model) => model.state !== "failed");
  const preferred = (view.kinds ?? []).map((kind) => usable.find((model) => model.kind === kind)).find((model) => model);
  return (preferred ?? usable.find((model) => supports(view, model)) ?? usable[0] ?? models[0])?.name ?? "";
}

function supports(view: View, { kind }: Model): boolean {
  return !view.kinds || kind === "unknown" || view.kinds.includes(kind);
}

interface FormProps {
  readonly view: View;
  readonly models: readonly Model[];
  readonly args: Arguments;
  /** The request failed, perhaps because of a hidden field: then hidden fields with a value are shown. */
  readonly failed: boolean;
  submit(args: Arguments): void;
}

function Form({ view, models, args, failed, submit }: FormProps) {
  const [values, setValues] = useState(args);
  const change = (name: string) => (value: string) => setValues({ ...values, [name]: value });
  const onEnter = (event: KeyboardEvent, lines: number) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (lines > MAX_SUBMIT_LINES && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    submit(values);
  };
  const takesImages = models.find((model) => model.name === values["model"])?.sees ?? false;
  const hasImage = view.fields.some((field) => field.image);
  const fields = view.fields.filter((field) => (!field.hidden || (failed && args[field.name])) && (!hasImage || (field.image ?? false) === takesImages));
  const names = models.filter((model) => model.name === values["model"] || supports(view, model)).map((model) => model.name);
  const modelSelect = (name: string, label: string, empty?: string) => (
    <Select key={name} class="field model" name={name} label={label} options={names} value={values[name] ?? ""} onSelect={change(name)} {...(empty && { empty })} />
  );
  const input = (field: Field) => (
    <label key={field.name} class={field.optional ? "field optional" : "field"}>
      <span>{field.label}</span>
      <textarea
        name={field.name}
        rows={field.lines ?? 1}
        dir="auto"
        spellcheck={false}
        value={values[field.name] ?? ""}
        onInput={(event) => change(field.name)(event.currentTarget.value)}
        onKeyDown={(event) => onEnter(event, field.lines ?? 1)}
      />
    </label>
  );
  return (
    <form
      class="request-form"
      onSubmit={(event) => {
        event.preventDefault();
        submit(values);
      }}
    >
      {fields.map((field) => {
        if (field.model) return modelSelect(field.name, field.label, "none");
        if (!field.image) return input(field);
        return <ImageUpload key={field.name} label={field.label} uploaded={values[field.name] ?? ""} onUpload={(image) => submit({ ...values, [field.name]: image })} />;
      })}
      {view.model && modelSelect("model", "Model")}
      <button type="submit" class="main">
        {view.submitLabel ?? "Show"}
      </button>
    </form>
  );
}

/** An image is uploaded and submitted as soon as it is chosen. */
function ImageUpload({ label, uploaded, onUpload }: { label: string; uploaded: string; onUpload(image: string): void }) {
  const [error, setError] = useState("");
  const send = (file: File | undefined) => {
    setError("");
    if (file) uploadImage(file).then(onUpload, (problem: Error) => setError(problem.message));
  };
  return (
    <div class="field">
      <label>
        <span>{label}</span>
        <input type="file" accept="image/png,image/jpeg" onChange={(event) => send(event.currentTarget.files?.[0])} />
      </label>
      {uploaded && <span class="muted">{uploaded.slice(uploaded.indexOf("/") + 1)}</span>}
      <ErrorMessage text={error} />
    </div>
  );
}
