// Evaluation: the scores of a fine-tuned model on labeled examples, what is behind them, and its errors.
import { Notes } from "../components";
import { count, decimal, plural } from "../format";
import { type Part, stack, textPart, translated, wrap } from "../painter";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { Drawing, Table, View } from "../view";
import {
  Calibration,
  calibrationDrawing,
  NoAnswer,
  Regression,
  Threshold,
  thresholdDrawing,
} from "./evaluation/charts";
import { Confusions, matrixDrawing } from "./evaluation/confusions";
import { Errors, errorRows } from "./evaluation/errors";
import type { EvaluationPayload } from "./evaluation/payload";
import { ClassTable, Groups, Schemes } from "./evaluation/tables";
import "./evaluation/evaluation.css";
import { OpenFile } from "./embeddings/open_file";
import { MESSAGES_WITH_LABELS } from "./tasks/examples";

function Show({ payload }: { payload: EvaluationPayload }) {
  return (
    <div class="evaluation">
      <OpenFile view="evaluation" field="data" whole />
      <ul class="evaluation-remarks">
        {payload.remarks.map((remark) => (
          <li key={remark}>{remark}</li>
        ))}
      </ul>
      <p class="muted">
        {payload.model && `${payload.model}: `}
        {payload.task}, {plural(payload.n, "example")} of {payload.data}
      </p>
      <Notes notes={payload.notes} />
      <Metrics payload={payload} />
      <div class="evaluation-grid">
        <Confusions payload={payload} />
        <ClassTable payload={payload} />
        <Regression payload={payload} />
        <Calibration payload={payload} />
        <Threshold payload={payload} />
        <Groups payload={payload} />
        <NoAnswer payload={payload} />
        <Schemes payload={payload} />
      </div>
      <Errors payload={payload} />
    </div>
  );
}

/** In the unit of the labels, not in percent. */
const UNITS = new Set(["mae", "rmse"]);
const NAMES: Readonly<Record<string, string>> = {
  f1: "F1",
  macro_f1: "macro F1",
  micro_f1: "micro F1",
  weighted_f1: "weighted F1",
  mcc: "MCC",
  mae: "MAE",
  rmse: "RMSE",
  exact_match: "exact match",
  no_answer_accuracy: "accuracy without answer",
  has_answer_f1: "F1 with answer",
  pearson: "Pearson",
  spearman: "Spearman",
};

const metricName = ({ positive }: EvaluationPayload, name: string) =>
  name === "f1" && positive ? `F1 of ${positive}` : (NAMES[name] ?? name);

/** Every metric with its interval on a scale from 0 to 100. */
function Metrics({ payload }: { payload: EvaluationPayload }) {
  return (
    <ul class="evaluation-metrics" aria-label="Metrics">
      {Object.entries(payload.metrics).map(([name, value]) => {
        const interval = payload.intervals[name];
        const digits = UNITS.has(name) ? 3 : 1;
        return (
          <li key={name}>
            <h2>{metricName(payload, name)}</h2>
            <strong>{decimal(value, digits)}</strong>
            {interval && (
              <>
                {!UNITS.has(name) && (
                  <span class="evaluation-scale" aria-hidden="true">
                    <i style={{ left: `${clamp(interval[0])}%`, right: `${100 - clamp(interval[1])}%` }} />
                    <b style={{ left: `${clamp(value)}%` }} />
                  </span>
                )}
                <small>
                  95%: {decimal(interval[0], digits)} to {decimal(interval[1], digits)}
                </small>
              </>
            )}
          </li>
        );
      })}
    </ul>
  );
}

const clamp = (value: number) => Math.max(0, Math.min(100, value));

const WIDTH = 900;

function drawing(payload: EvaluationPayload): Drawing {
  const { muted } = colors.get();
  const metric = ([name, value]: [string, number]): Part => {
    const interval = payload.intervals[name];
    const digits = UNITS.has(name) ? 3 : 1;
    const range = interval ? ` [${decimal(interval[0], digits)}, ${decimal(interval[1], digits)}]` : "";
    return textPart(`${metricName(payload, name)}: ${decimal(value, digits)}${range}`);
  };
  const charts = [matrixDrawing(payload), calibrationDrawing(payload), thresholdDrawing(payload)].filter(
    (one) => one !== null,
  );
  return stack(
    [
      ...wrap(payload.finding, 100).map((line) => textPart(line, { size: 17, bold: true }, 28)),
      ...payload.remarks.flatMap((remark) => wrap(remark, 120)).map((line) => textPart(line, { color: muted }, 20)),
      ...Object.entries(payload.metrics).map(metric),
      ...charts.flatMap(({ title, ...chart }): Part[] => [
        textPart(title, { bold: true }, 34),
        [chart.height + 10, (painter, y) => chart.draw(translated(painter, 20, y))],
      ]),
    ],
    Math.max(WIDTH, ...charts.map((chart) => chart.width + 40)),
  );
}

function table(payload: EvaluationPayload): Table {
  const rows: (string | number)[][] = [];
  for (const [name, value] of Object.entries(payload.metrics))
    rows.push(["metric", name, value, ...(payload.intervals[name] ?? ["", ""])]);
  for (const one of payload.classes)
    for (const key of ["precision", "recall", "f1", "support"] as const)
      rows.push(["class", `${one.label}: ${key}`, one[key], "", ""]);
  for (const one of payload.groups)
    rows.push([one.by, `${one.group}: F1 of ${count(one.n)}`, one.f1, ...one.f1_interval]);
  for (const one of payload.schemes) rows.push(["scheme", `${one.scheme}: f1`, one.f1, "", ""]);
  for (const row of errorRows(payload)) rows.push(row);
  return { headers: ["what", "name", "value", "low", "high"], rows };
}

/** The first two examples with each other's label. */
const swapLabels = (data: string) => data.replace("\tspam", "\t?").replace("\tham", "\tspam").replace("\t?", "\tham");

export const evaluation: View<EvaluationPayload> = {
  name: "evaluation",
  title: "Evaluation",
  about:
    "How good is a fine-tuned model on your labeled examples? Scores with intervals, confusions, calibration, " +
    "thresholds, and the worst errors.",
  group: "tasks",
  prefers: ["classify"],
  examples: [
    { label: "Twelve messages", values: { data: MESSAGES_WITH_LABELS }, model: "regard-spam" },
    {
      label: "Only messages to friends",
      values: {
        data: MESSAGES_WITH_LABELS.split("\n")
          .filter((line) => line.endsWith("ham"))
          .join("\n"),
      },
      model: "regard-spam",
    },
    {
      label: "Only offers",
      values: {
        data: MESSAGES_WITH_LABELS.split("\n")
          .filter((line) => line.endsWith("spam"))
          .join("\n"),
      },
      model: "regard-spam",
    },
    { label: "With two wrong labels", values: { data: swapLabels(MESSAGES_WITH_LABELS) }, model: "regard-spam" },
  ],
  Thumbnail: thumbnails.evaluation,
  finding: ({ finding, model }) => `${model}: ${finding}`,
  verb: "evaluate",
  needs: {
    capability: "fine-tuned",
    without: "was pretrained and not tuned for a task: there is nothing to evaluate on labeled examples.",
    models: "Fine-tuned models",
    advice:
      "None of the studio's models is fine-tuned for a task. Train one in Tasks, or start the studio with one: " +
      "regard studio --model DIR.",
  },
  submitLabel: "Evaluate",
  fields: [
    {
      name: "data",
      label: "Labeled examples: a text, a tab and its label per line; or any table that regard train reads",
      lines: 4,
      start: "",
      required: "Paste labeled examples, or choose a file.",
    },
  ],
  Show,
  Below: ({ payload }) => (payload ? null : <OpenFile view="evaluation" field="data" whole />),
  drawing,
  table,
};
