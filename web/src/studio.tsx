// The studio: select a view, fill in its form, see the result.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { can, refreshModels, runVerb, studioModels, uploadImage, type VerbEvent } from "./api";
import { ErrorMessage, ModelLinks, Select } from "./components";
import { ViewWithExports } from "./export_panel";
import { EXAMPLE_IMAGES } from "./patch_pictures";
import { currentRoute, navigate } from "./route";
import { ThemeSwitch } from "./theme";
import type { ModelState } from "./types";
import type { Arguments, Field, Payload, View } from "./view";
import { views } from "./views";

type Result = { state: "waiting" } | { state: "failed"; error: string } | { state: "done"; payload: Payload; args: Arguments };

const menu = views.filter((view) => view.verb); // the other views only show results of the command line
const MAX_SUBMIT_LINES = 2; // in taller text boxes, Enter starts a new line
const POLL = 400; // milliseconds

export function Studio() {
  const models = useModels();
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
        <ViewRequest key={view.name} view={view} models={models} />
      </main>
    </>
  );
}

/** The studio's models, updated while one of them is being loaded. */
function useModels(): readonly ModelState[] {
  const models = studioModels.use() ?? [];
  const loading = models.some((model) => model.state === "loading");
  useEffect(() => {
    if (!loading) return;
    const timer = setInterval(() => void refreshModels().catch(() => undefined), POLL); // the next request reports the error
    return () => clearInterval(timer);
  }, [loading]);
  return models;
}

function ModelStates({ models }: { models: readonly ModelState[] }) {
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
function ViewRequest({ view, models }: { view: View; models: readonly ModelState[] }) {
  const { parameters } = currentRoute.use();
  const initial = useRef(""); // stays once set: a new model must not replace the one in use
  if (!models.some((one) => one.name === initial.current && one.state === "ready")) initial.current = defaultModel(view, models);
  const name = parameters["model"] ?? initial.current;
  const args = useMemo(() => {
    const values: Record<string, string> = { model: name };
    const fresh = !view.fields.some((field) => field.name in parameters);
    for (const field of view.fields) values[field.name] = parameters[field.name] ?? (fresh ? field.start : "");
    return values;
  }, [view, name, ...view.fields.map((field) => parameters[field.name])]);
  const model = models.find((one) => one.name === name);
  const loading = model?.state === "loading";
  const image = view.fields.find((field) => field.image);
  const needsImage = !loading && image !== undefined && takesImages(model) && !args[image.name];
  const incomplete = view.fields.find((field) => field.required && !args[field.name]?.trim());
  const unsuited = !!model && !!view.needs && !can(model, view.needs.capability);
  const [result, setResult] = useState<Result>({ state: "waiting" });
  const [progress, setProgress] = useState("");
  const [submission, setSubmission] = useState(0);
  useEffect(() => {
    setProgress("");
    if (loading || needsImage || incomplete || unsuited) return setResult({ state: "waiting" });
    const controller = new AbortController();
    const { signal } = controller;
    setResult((before) => (before.state === "done" ? before : { state: "waiting" }));
    const show = (payload: Payload) => signal.aborted || setResult({ state: "done", payload, args });
    const onEvent = (event: VerbEvent) => event.type === "progress" && setProgress(`${event.stage}: ${event.done}${event.total === null ? "" : ` of ${event.total}`} ${event.unit} …`);
    const request = () => runVerb(view.verb!, view.toRequest?.(args, takesImages(model)) ?? args, onEvent, signal);
    (view.load ? view.load(args, show, signal) : request())
      .then(show, (error: Error) => signal.aborted || setResult({ state: "failed", error: error.message }))
      .then(() => (model?.state === "failed" ? refreshModels() : undefined)); // the server tried to load it again
    return () => controller.abort();
  }, [view, args, loading, needsImage, incomplete, unsuited, submission]);
  const submit = (next: Arguments) => {
    // Layer, head and the like stay; a locked token belonged to the old text.
    const { lock: _, ...kept } = currentRoute.get().parameters;
    navigate({ view: view.name, parameters: { ...kept, ...next } }, { push: true });
    setSubmission(submission + 1);
  };
  const busy = !unsuited && !incomplete && (result.state === "waiting" || (result.state === "done" && result.args !== args));
  const status = needsImage ? `${name} takes images: choose one.` : incomplete && !unsuited ? incomplete.required : !busy ? "" : loading ? `Waiting for ${name} …` : progress || "Computing …";
  const { Below } = view;
  return (
    <>
      {(!view.ownForm || result.state === "failed") && (
        <Form key={JSON.stringify(args)} view={view} models={models} args={args} submit={submit} failed={result.state === "failed"} />
      )}
      <p role="status" class="muted busy">
        {status}
      </p>
      <ErrorMessage text={result.state === "failed" ? result.error : ""} />
      {unsuited && <Unsuited view={view} name={name} models={models} />}
      {result.state === "done" && (
        <div aria-busy={busy}>
          <ViewWithExports view={view} payload={result.payload} args={result.args} />
        </div>
      )}
      {Below && !busy && <Below payload={result.state === "done" ? result.payload : null} args={args} model={model} />}
    </>
  );
}

/** Why a model cannot be shown in a view, and those that can. */
function Unsuited({ view, name, models }: { view: View; name: string; models: readonly ModelState[] }) {
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

/** The model a view starts with: the first that can do what it prefers. */
function defaultModel(view: View, models: readonly ModelState[]): string {
  const usable = models.filter((model) => model.state !== "failed");
  const suited = usable.filter((model) => suits(view, model));
  const preferred = (view.prefers ?? []).map((capability) => suited.find((model) => model.capabilities?.includes(capability))).find((model) => model);
  return (preferred ?? suited[0] ?? usable[0] ?? models[0])?.name ?? "";
}

function suits({ needs, excludes }: View, model: ModelState): boolean {
  return (!needs || can(model, needs.capability)) && !excludes?.some((capability) => model.capabilities?.includes(capability));
}

const takesImages = (model: ModelState | undefined) => model?.capabilities?.includes("image") ?? false;

interface FormProps {
  readonly view: View;
  readonly models: readonly ModelState[];
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
  const images = view.fields.some((field) => field.image) && takesImages(models.find((model) => model.name === values["model"]));
  const fields = view.fields.filter((field) => (!field.hidden || (failed && args[field.name])) && (field.image ?? false) === images);
  const names = models.filter((model) => model.name === values["model"] || suits(view, model)).map((model) => model.name);
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
      {modelSelect("model", "Model")}
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
      <select aria-label="Example image" value={EXAMPLE_IMAGES.includes(uploaded) ? uploaded : ""} onChange={(event) => event.currentTarget.value && onUpload(event.currentTarget.value)}>
        <option value="">{uploaded.slice(uploaded.indexOf("/") + 1) || "or an example"}</option>
        {EXAMPLE_IMAGES.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
      <ErrorMessage text={error} />
    </div>
  );
}
