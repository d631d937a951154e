// Training a model from the page: the form, the progress, and stopping it.
import { useEffect, useState } from "preact/hooks";
import { modelsChanged, request } from "../../api";
import { ErrorMessage, Select } from "../../components";
import { count } from "../../format";
import { currentRoute, formatRoute } from "../../route";
import { store } from "../../store";
import type { StudioInfo, TrainingJob } from "./prediction";

const POLL = 700; // milliseconds
const MAX_UPLOAD = 900_000; // characters

// Module state: a training continues while another view is shown, and the form keeps its values.
const currentJob = store<TrainingJob | null>(null);
const currentError = store("");
const formValues = store({ task: "classify", path: "", model: "", output: "", epochs: "3", limit: "1000", columns: "" });
const uploadedFile = store<File | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

function setJob(job: TrainingJob | null): void {
  const before = currentJob.get();
  currentJob.set(job);
  if (job?.state === "done" && (before?.state !== "done" || before.output !== job.output)) modelsChanged.set(modelsChanged.get() + 1);
}

/** Sends a request about the training job, and polls it while it runs. */
async function send(name: string, args: object): Promise<void> {
  clearTimeout(timer);
  try {
    setJob((await request<{ readonly training: TrainingJob | null }>(name, args)).training);
    currentError.set("");
  } catch (error) {
    currentError.set((error as Error).message);
  }
  poll();
}

function poll(): void {
  clearTimeout(timer);
  if (currentJob.get()?.state === "running") timer = setTimeout(() => void send("training", {}), POLL);
}

export function Train({ studio, open }: { studio: StudioInfo; open: boolean }) {
  const job = currentJob.use();
  const error = currentError.use();
  const [opened] = useState(open || studio.training?.state === "running");
  useEffect(() => {
    if (currentJob.get()?.state === "running") return; // newer than the payload
    setJob(studio.training);
    poll();
  }, [studio]);
  return (
    <details class="task-train" open={opened}>
      <summary>Train a model</summary>
      {job && <Progress job={job} cancel={() => void send("cancel-training", {})} />}
      <ErrorMessage text={error} />
      {job?.state !== "running" && <TrainingForm studio={studio} />}
    </details>
  );
}

function TrainingForm({ studio }: { studio: StudioInfo }) {
  const values = formValues.use();
  const file = uploadedFile.use();
  const [busy, setBusy] = useState(false);
  const models = studio.pretrained.length ? studio.pretrained : ["regard-bert"];
  const model = models.includes(values.model) ? values.model : models[0]!;
  const set = (name: string) => (value: string) => formValues.set({ ...formValues.get(), [name]: value });
  const run = async (work: Promise<void>) => {
    setBusy(true);
    await work;
    setBusy(false);
  };
  const submit = async () => {
    const args = { ...values, model };
    if (!file || values.path.trim()) return send("train", args);
    if (file.size > MAX_UPLOAD)
      return currentError.set(`${file.name} is too large to upload (${count(file.size)} bytes of ${count(MAX_UPLOAD)}); put it into ${studio.folder} and enter its name`);
    let content: string;
    try {
      content = await file.text();
    } catch {
      return currentError.set(`${file.name} can no longer be read; choose it again`);
    }
    return send("train", { ...args, name: file.name, content });
  };
  const input = (name: keyof typeof values, label: string, attributes: object, className = "field task-small") => (
    <label class={className}>
      <span>{label}</span>
      <input name={name} value={values[name]} onInput={(event) => set(name)(event.currentTarget.value)} spellcheck={false} {...attributes} />
    </label>
  );
  return (
    <>
      <p class="task-builtin">
        <button type="button" class="main" disabled={busy} onClick={() => void run(send("train", { examples: "ours" }))}>
          Train on {studio.ours.examples} built-in sentences
        </button>{" "}
        They are labeled {studio.ours.labels.join(", ")}: too few for a good model, enough to see how training works. Or use your own examples:
      </p>
      <form
        class="request-form task-form"
        onSubmit={(event) => {
          event.preventDefault();
          void run(submit());
        }}
      >
        <Select class="field model" name="task" label="Task" options={studio.tasks} value={values.task} onSelect={set("task")} />
        {input("path", `File in ${studio.folder} or given with --data (${studio.formats[values.task]})`, { type: "text", placeholder: "examples.tsv" }, "field")}
        <label class="field task-upload">
          <span>… or upload a small one{file && `: ${file.name}`}</span>
          <input type="file" name="file" onChange={(event) => uploadedFile.set(event.currentTarget.files?.[0] ?? null)} />
        </label>
        {input("limit", "Examples (0: all)", { type: "number", min: 0 })}
        {input("epochs", "Epochs", { type: "number", min: 1, max: 20 })}
        <Select class="field model" name="start" label="Start from" options={models} value={model} onSelect={set("model")} />
        {input("output", `Name of the model, a folder in ${studio.folder} (empty: a new one)`, { type: "text" }, "field")}
        {input("columns", "Columns, if not detected", { type: "text", placeholder: "text,label" })}
        <button type="submit" class="main" disabled={busy}>
          Train
        </button>
      </form>
    </>
  );
}

function Progress({ job, cancel }: { job: TrainingJob; cancel(): void }) {
  const running = job.state === "running";
  const heading = { running: job.stopping ? "Stopping" : "Training", done: "Trained", failed: "Failed", cancelled: "Stopped" }[job.state];
  const selected = currentRoute.use().parameters["model"];
  const use = () => {
    location.hash = formatRoute({ view: "tasks", parameters: { model: job.output } });
    scrollTo(0, 0);
  };
  const time = running && job.left !== null ? `${duration(job.left)} left` : `${duration(job.seconds)} in total`;
  const status = job.steps
    ? `step ${count(job.step)} of ${count(job.steps)}, epoch ${job.epoch} of ${job.epochs}, loss ${(job.loss ?? 0).toFixed(3)}, ${job.rate.toPrecision(2)} steps/s, ${time}`
    : running
      ? "Reading the examples and the model …"
      : "";
  return (
    <section class="task-job" aria-label="Training">
      <h3>
        {heading}: {job.task} on {job.data}
      </h3>
      {running && <progress aria-label="Steps done" max={1} {...(job.steps ? { value: job.step / job.steps } : {})} />}
      <p class="muted" role="status">
        {status}
      </p>
      {job.said.length > 0 && (
        <ul class="muted">
          {job.said.map((line, number) => (
            <li key={number}>{line}</li>
          ))}
        </ul>
      )}
      <ErrorMessage text={job.error} />
      {job.command && <pre tabIndex={0} aria-label="Command line of this training">{job.command}</pre>}
      {running && (
        <button type="button" onClick={cancel} disabled={job.stopping}>
          Stop
        </button>
      )}
      {job.state === "done" && (
        <p>
          The model is in <code>{job.output}</code>.{" "}
          {selected !== job.output && (
            <button type="button" class="main" onClick={use}>
              Use it
            </button>
          )}
        </p>
      )}
    </section>
  );
}

function duration(seconds: number): string {
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}
