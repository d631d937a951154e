// Training a model from the page: the form, the progress, and stopping it.
import { useEffect, useRef, useState } from "preact/hooks";
import { act, modelsThatCan, refreshModels } from "../../api";
import { Canvas, useWidth } from "../../canvas";
import { ErrorMessage, Select } from "../../components";
import { count } from "../../format";
import type { Painter } from "../../painter";
import { currentRoute, formatRoute } from "../../route";
import { store } from "../../store";
import { colors } from "../../theme";
import type { TrainingOptions, TrainingStatus } from "../../types";

const POLL = 700; // milliseconds
const MAX_UPLOAD = 900_000; // characters

// Module state: a training continues while another view is shown, and the form keeps its values.
const current = store<TrainingOptions | null>(null);
const currentError = store("");
const formValues = store({
  task: "classify",
  path: "",
  model: "",
  output: "",
  epochs: "3",
  limit: "1000",
  columns: "",
});
const uploadedFile = store<File | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

/** Sends a request about the training job, and polls it while it runs. */
async function send(name: "train" | "training" | "cancel-training", args: object): Promise<void> {
  clearTimeout(timer);
  try {
    const before = current.get()?.job;
    const options = await act(name, args);
    current.set(options);
    currentError.set("");
    if (options.job?.state === "done" && (before?.state !== "done" || before.output !== options.job.output))
      await refreshModels();
  } catch (error) {
    currentError.set((error as Error).message);
  }
  if (current.get()?.job?.state === "running") timer = setTimeout(() => void send("training", {}), POLL);
}

export function Train({ open }: { open: boolean }) {
  const options = current.use();
  const error = currentError.use();
  useEffect(() => void send("training", {}), []);
  const opened = useRef(false); // stays open
  if (!options) return <ErrorMessage text={error} />;
  const { job } = options;
  opened.current ||= open || job?.state === "running";
  return (
    <details class="task-train" open={opened.current}>
      <summary>Train a model</summary>
      {job && <Progress job={job} cancel={() => void send("cancel-training", {})} />}
      <ErrorMessage text={error} />
      {job?.state !== "running" && <TrainingForm options={options} />}
    </details>
  );
}

function TrainingForm({ options }: { options: TrainingOptions }) {
  const values = formValues.use();
  const file = uploadedFile.use();
  const [busy, setBusy] = useState(false);
  const pretrained = modelsThatCan("fine-tuning");
  const models = pretrained.length ? pretrained : ["regard-bert"];
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
      return currentError.set(
        `${file.name} is too large to upload (${count(file.size)} bytes of ${count(MAX_UPLOAD)}); put it into ` +
          `${options.folder} and enter its name`,
      );
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
      <input
        name={name}
        value={values[name]}
        onInput={(event) => set(name)(event.currentTarget.value)}
        spellcheck={false}
        {...attributes}
      />
    </label>
  );
  return (
    <>
      <p class="task-builtin">
        <button
          type="button"
          class="main"
          disabled={busy}
          onClick={() => void run(send("train", { builtin_examples: true }))}
        >
          Train on {options.builtin_examples} built-in sentences
        </button>{" "}
        They are labeled {options.builtin_labels.join(", ")}: too few for a good model, enough to see how training
        works. Or use your own examples:
      </p>
      <form
        class="request-form task-form"
        onSubmit={(event) => {
          event.preventDefault();
          void run(submit());
        }}
      >
        <Select
          class="field model"
          name="task"
          label="Task"
          options={Object.keys(options.tasks)}
          value={values.task}
          onSelect={set("task")}
        />
        {input(
          "path",
          `File in ${options.folder} or given with --data (${options.tasks[values.task]})`,
          { type: "text", placeholder: "examples.tsv" },
          "field",
        )}
        <label class="field task-upload">
          <span>… or upload a small one{file && `: ${file.name}`}</span>
          <input
            type="file"
            name="file"
            onChange={(event) => uploadedFile.set(event.currentTarget.files?.[0] ?? null)}
          />
        </label>
        {input("limit", "Examples (0: all)", { type: "number", min: 0 })}
        {input("epochs", "Epochs", { type: "number", min: 1, max: 20 })}
        <Select
          class="field model"
          name="start"
          label="Start from"
          options={models}
          value={model}
          onSelect={set("model")}
        />
        {input(
          "output",
          `Name of the model, a folder in ${options.folder} (empty: a new one)`,
          { type: "text" },
          "field",
        )}
        {input("columns", "Columns, if not detected", { type: "text", placeholder: "text,label" })}
        <button type="submit" class="main" disabled={busy}>
          Train
        </button>
      </form>
    </>
  );
}

function Progress({ job, cancel }: { job: TrainingStatus; cancel(): void }) {
  const running = job.state === "running";
  const heading = {
    running: job.stopping ? "Stopping" : "Training",
    done: "Trained",
    failed: "Failed",
    cancelled: "Stopped",
  }[job.state];
  const selected = currentRoute.use().parameters["model"];
  const use = () => {
    location.hash = formatRoute({ view: "tasks", parameters: { model: job.output } });
    scrollTo(0, 0);
  };
  const time =
    running && job.seconds_left !== null ? `${duration(job.seconds_left)} left` : `${duration(job.seconds)} in total`;
  const status = job.steps
    ? `step ${count(job.step)} of ${count(job.steps)}, epoch ${job.epoch} of ${job.epochs}, loss ` +
      `${(job.loss ?? 0).toFixed(3)}, ${job.steps_per_second.toPrecision(2)} steps/s, ${time}`
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
      {job.curve.length > 1 && <Curve job={job} />}
      {job.messages.length > 0 && (
        <ul class="muted">
          {job.messages.map((line, number) => (
            <li key={number}>{line}</li>
          ))}
        </ul>
      )}
      <ErrorMessage text={job.error} />
      {job.command && (
        <pre tabIndex={0} aria-label="Command line of this training">
          {job.command}
        </pre>
      )}
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

const CURVE = { width: 460, height: 150, left: 46, top: 12, right: 46 };

/** The training loss over the steps, and the score on dev after each epoch; drawn again as points arrive. */
function Curve({ job: { curve, steps, scores } }: { job: TrainingStatus }) {
  const { height, left, top, right } = CURVE;
  const [element, room] = useWidth<HTMLDivElement>();
  const width = Math.min(CURVE.width, room);
  const last = Math.max(steps, ...curve.map((point) => point.step), 1);
  const highest = Math.max(...curve.map((point) => point.loss), 1e-9);
  const x = (step: number) => left + ((width - left - right) * step) / last;
  const y = (share: number) => top + height * (1 - share);
  const evaluated = curve.filter((point) => point.score !== null);
  const line = (points: readonly (readonly [number, number])[]) =>
    points.slice(1).flatMap((point, index) => [...points[index]!, ...point]);
  const draw = (painter: Painter) => {
    const { accent, muted, other, rule } = colors.get();
    for (const share of [0, 0.5, 1]) {
      painter.line(left, y(share), width - right, y(share), rule);
      painter.text((highest * share).toFixed(2), left - 6, y(share), { align: "right", size: 11, color: accent });
      if (evaluated.length) painter.text(`${100 * share}%`, width - right + 6, y(share), { size: 11, color: other });
    }
    painter.text("step 0", left, top + height + 16, { size: 11, color: muted });
    painter.text(`step ${count(last)}`, width - right, top + height + 16, { size: 11, align: "right", color: muted });
    painter.lines(line(curve.map((point) => [x(point.step), y(point.loss / highest)] as const)), accent, 1, false, 2);
    const points = evaluated.map((point) => [x(point.step), y(point.score! / 100)] as const);
    painter.lines(line(points), other, 1, false, 2, [6, 4]);
    for (const [px, py] of points) painter.rect(px - 3, py - 3, 6, 6, other);
  };
  const name = Object.keys(scores)[0];
  return (
    <figure class="task-curve">
      <figcaption class="muted">
        Training loss (solid){name && evaluated.length > 0 ? `, and ${name} on dev after each epoch (dashed)` : ""}
      </figcaption>
      <div ref={element}>
        {width > 0 && (
          <Canvas
            width={width}
            height={top + height + 26}
            inputs={[curve]}
            draw={draw}
            label={`Training loss from ${curve[0]!.loss.toFixed(2)} to ${curve.at(-1)!.loss.toFixed(2)}`}
          />
        )}
      </div>
    </figure>
  );
}

function duration(seconds: number): string {
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}
