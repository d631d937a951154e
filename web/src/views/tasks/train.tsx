// Training a new model from the page: what to train on, how far it is, stopping it. Knows the studio's server.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../../api";
import { modelsChanged } from "../../api";
import { formatRoute, currentRoute } from "../../route";
import { store } from "../../store";
import type { Job, Tasks } from "./payload";

const PAUSE = 700; // milliseconds between looks at a training
const LARGEST = 900_000; // characters of a file that can be sent

type Studio = NonNullable<Tasks["studio"]>;
type Answer = { readonly training: Job | null };

const READS: Readonly<Record<string, string>> = {
  classify: "TSV or CSV with a text and its label",
  pair: "TSV or CSV with two texts and their label",
  regress: "TSV or CSV with one or two texts and a number",
  tag: "CoNLL's columns: a word first and its tag last on each line, a blank line between sentences",
  answer: "SQuAD's JSON, or JSONL with question, context and answers",
  choose: "JSONL with ctx, endings and label",
};

// Outside of what is drawn: a training goes on while another view is shown, and what was typed is there afterwards.
const current = store<Job | null>(null);
const problem = store("");
const typed = store({ task: "classify", path: "", model: "", output: "", epochs: "3", limit: "1000", columns: "" });
const sent = store<File | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

function hear(job: Job | null): void {
  const before = current.get();
  current.set(job);
  if (job?.state === "done" && (before?.state !== "done" || before.output !== job.output)) modelsChanged.set(modelsChanged.get() + 1);
}

/** Ask the studio about the training, and again while it goes on. */
async function told(question: string, args: object): Promise<void> {
  clearTimeout(timer);
  try {
    hear(((await ask(question, args, new AbortController().signal)) as unknown as Answer).training);
    problem.set("");
  } catch (error) {
    problem.set((error as Error).message);
  }
  watch();
}

function watch(): void {
  clearTimeout(timer);
  if (current.get()?.state === "running") timer = setTimeout(() => void told("training", {}), PAUSE);
}

export function Train({ studio, open }: { studio: Studio; open: boolean }) {
  const job = current.use();
  const error = problem.use();
  const [opened] = useState(open || studio.training?.state === "running");
  const running = job?.state === "running";
  useEffect(() => {
    if (current.get()?.state === "running") return; // it is known better than when this was asked
    hear(studio.training);
    watch();
  }, [studio]);
  return (
    <details class="task-train" open={opened}>
      <summary>Train a model</summary>
      {job && <Progress job={job} cancel={() => void told("cancel-training", {})} />}
      {error && (
        <p role="alert" class="error">
          {error}
        </p>
      )}
      {!running && <Ours ours={studio.ours} />}
      {!running && <Order studio={studio} />}
    </details>
  );
}

/** A model without any file of the user's. */
function Ours({ ours }: { ours: Studio["ours"] }) {
  const [busy, press] = useBusy();
  return (
    <p class="task-ours">
      <button type="button" class="main" disabled={busy} onClick={() => void press(told("train", { examples: "ours" }))}>
        Train one on {ours.examples} sentences of ours
      </button>{" "}
      They come with Regard, labelled {ours.labels.join(", ")}: too few for a good model, enough to see how one is made. Or use examples of your own:
    </p>
  );
}

/** Whether what was begun last still goes on. */
function useBusy(): readonly [boolean, (work: Promise<void>) => Promise<void>] {
  const [busy, set] = useState(false);
  return [
    busy,
    async (work) => {
      set(true);
      await work;
      set(false);
    },
  ];
}

function Order({ studio }: { studio: Studio }) {
  const said = typed.use();
  const file = sent.use();
  const [busy, press] = useBusy();
  const starts = studio.pretrained.length ? studio.pretrained : ["regard-bert"];
  const model = starts.includes(said.model) ? said.model : starts[0]!;
  const change = (name: string) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    typed.set({ ...typed.get(), [name]: event.currentTarget.value });
  const submit = async () => {
    const args = { ...said, model };
    if (!file || said.path.trim()) return told("train", args);
    if (file.size > LARGEST)
      return problem.set(`${file.name} is too large to send (${file.size.toLocaleString("en")} bytes of ${LARGEST.toLocaleString("en")}); put it into ${studio.folder} and give its name`);
    let content: string;
    try {
      content = await file.text();
    } catch {
      return problem.set(`${file.name} cannot be read any more; choose it again`);
    }
    return told("train", { ...args, name: file.name, content });
  };
  return (
    <form
      class="ask task-order"
      onSubmit={(event) => {
        event.preventDefault();
        void press(submit());
      }}
    >
      <label class="field model">
        <span>Task</span>
        <select name="task" value={said.task} onChange={change("task")}>
          {studio.tasks.map((task) => (
            <option key={task}>{task}</option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>File in {studio.folder} or given with --data ({READS[said.task] ?? "labelled examples"})</span>
        <input type="text" name="path" value={said.path} onInput={change("path")} spellcheck={false} placeholder="examples.tsv" />
      </label>
      <label class="field task-upload">
        <span>… or send a small one{file && `: ${file.name}`}</span>
        <input type="file" name="file" onChange={(event) => sent.set(event.currentTarget.files?.[0] ?? null)} />
      </label>
      <label class="field task-small">
        <span>Examples (0: all)</span>
        <input type="number" name="limit" min={0} value={said.limit} onInput={change("limit")} />
      </label>
      <label class="field task-small">
        <span>Epochs</span>
        <input type="number" name="epochs" min={1} max={20} value={said.epochs} onInput={change("epochs")} />
      </label>
      <label class="field model">
        <span>Start from</span>
        <select name="start" value={model} onChange={change("model")}>
          {starts.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>Name of the model, a folder in {studio.folder} (empty: a new one)</span>
        <input type="text" name="output" value={said.output} onInput={change("output")} spellcheck={false} />
      </label>
      <label class="field task-small">
        <span>Columns, if not found</span>
        <input type="text" name="columns" value={said.columns} onInput={change("columns")} placeholder="text,label" spellcheck={false} />
      </label>
      <button type="submit" class="main" disabled={busy}>
        Train
      </button>
    </form>
  );
}

function Progress({ job, cancel }: { job: Job; cancel(): void }) {
  const share = job.steps ? job.step / job.steps : 0;
  const heading = { running: job.stopping ? "Stopping" : "Training", done: "Trained", failed: "Failed", cancelled: "Stopped" }[job.state];
  const here = currentRoute.use();
  const use = () => {
    location.hash = formatRoute({ view: "tasks", parameters: { model: job.output } });
    scrollTo(0, 0);
  };
  return (
    <section class="task-job" aria-label="Training">
      <h3>
        {heading}: {job.task} on {job.data}
      </h3>
      {job.state === "running" && <progress aria-label="Steps done" max={1} {...(job.steps ? { value: share } : {})} />}
      <p class="muted" role="status">
        {job.steps
          ? `step ${job.step.toLocaleString("en")} of ${job.steps.toLocaleString("en")}, epoch ${job.epoch} of ${job.epochs}, ` +
            `loss ${(job.loss ?? 0).toFixed(3)}, ${job.rate.toPrecision(2)} steps/s` +
            (job.state === "running" && job.left !== null ? `, ${duration(job.left)} left` : `, ${duration(job.seconds)} in all`)
          : job.state === "running"
            ? "Reading the examples and the model …"
            : ""}
      </p>
      {job.said.length > 0 && (
        <ul class="muted">
          {job.said.map((line, number) => (
            <li key={number}>{line}</li>
          ))}
        </ul>
      )}
      {job.error && <p class="error" role="alert">{job.error}</p>}
      {job.command && <pre tabIndex={0} aria-label="Command line of this training">{job.command}</pre>}
      {job.state === "running" && (
        <button type="button" onClick={cancel} disabled={job.stopping}>
          Stop
        </button>
      )}
      {job.state === "done" && (
        <p>
          The model is in <code>{job.output}</code>.{" "}
          {here.parameters["model"] !== job.output && (
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
