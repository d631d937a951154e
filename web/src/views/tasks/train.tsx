// Training a new model from the page: what to train on, how far it is, stopping it. Knows the studio's server.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../../api";
import { format } from "../../place";
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

export function Train({ studio, open }: { studio: Studio; open: boolean }) {
  const [job, setJob] = useState(studio.training);
  const [opened] = useState(open || studio.training?.state === "running");
  const [error, fail] = useState("");
  const running = job?.state === "running";
  const told = (question: string, args: object) =>
    ask(question, args, new AbortController().signal).then(
      (answer) => {
        fail("");
        setJob((answer as unknown as Answer).training);
      },
      (problem: Error) => fail(problem.message),
    );
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => void told("training", {}), PAUSE);
    return () => clearInterval(timer);
  }, [running]);
  return (
    <details class="task-train" open={opened}>
      <summary>Train a model on your own examples</summary>
      {job && <Progress job={job} cancel={() => void told("cancel-training", {})} />}
      {error && (
        <p role="alert" class="error">
          {error}
        </p>
      )}
      {!running && <Order studio={studio} start={(args) => told("train", args)} fail={fail} />}
    </details>
  );
}

interface OrderProps {
  readonly studio: Studio;
  start(args: object): Promise<void>;
  fail(error: string): void;
}

function Order({ studio, start, fail }: OrderProps) {
  const [said, say] = useState({ task: "classify", path: "", model: studio.pretrained[0] ?? "regard-bert", output: "", epochs: "3", limit: "1000", columns: "" });
  const [busy, setBusy] = useState(false);
  const file = useRef<HTMLInputElement>(null);
  const change = (name: string) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) => say({ ...said, [name]: event.currentTarget.value });
  const submit = async () => {
    const sent = file.current?.files?.[0];
    if (sent && sent.size > LARGEST) return fail(`${sent.name} is too large to send (${sent.size.toLocaleString("en")} bytes of ${LARGEST.toLocaleString("en")}); give its path instead`);
    setBusy(true);
    await start({ ...said, ...(sent && !said.path.trim() && { name: sent.name, content: await sent.text() }) });
    setBusy(false);
  };
  return (
    <form
      class="ask task-order"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
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
        <span>File on this machine ({READS[said.task] ?? "labelled examples"})</span>
        <input type="text" name="path" value={said.path} onInput={change("path")} spellcheck={false} placeholder="/path/to/examples.tsv" />
      </label>
      <label class="field task-upload">
        <span>… or send a small one</span>
        <input type="file" name="file" ref={file} />
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
        <select name="start" value={said.model} onChange={change("model")}>
          {(studio.pretrained.length ? studio.pretrained : ["regard-bert"]).map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>Folder for the model (empty: a new one in trained/)</span>
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
  // The list of models is asked for when the page opens, so the page is opened anew for a new model.
  const use = () => {
    location.hash = format({ view: "tasks", parameters: { model: job.output } });
    location.reload();
  };
  return (
    <section class="task-job" aria-label="Training">
      <h3>
        {heading}: {job.task} on {job.data}
      </h3>
      {job.state === "running" && <progress aria-label="Steps done" max={1} {...(job.steps ? { value: share } : {})} />}
      <p class="quiet" role="status">
        {job.steps
          ? `step ${job.step.toLocaleString("en")} of ${job.steps.toLocaleString("en")}, epoch ${job.epoch} of ${job.epochs}, ` +
            `loss ${(job.loss ?? 0).toFixed(3)}, ${job.rate.toPrecision(2)} steps/s` +
            (job.state === "running" && job.left !== null ? `, ${duration(job.left)} left` : `, ${duration(job.seconds)} in all`)
          : job.state === "running"
            ? "Reading the examples and the model …"
            : ""}
      </p>
      {job.said.length > 0 && (
        <ul class="quiet">
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
          <button type="button" class="main" onClick={use}>
            Use it
          </button>
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
