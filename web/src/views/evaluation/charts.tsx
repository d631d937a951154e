// Charts: reliability, scores at every threshold, and predicted against true numbers.
import { ticks as roundNumbers } from "d3-array";
import { Canvas, useWidth } from "../../canvas";
import { DataTable, Select } from "../../components";
import { count, decimal, fixedPercent } from "../../format";
import type { Painter } from "../../painter";
import { currentRoute, integerParameter, type Route, setParameters } from "../../route";
import { colors } from "../../theme";
import type { Calibration as CalibrationData, ThresholdCurve } from "../../types";
import type { Drawing } from "../../view";
import type { EvaluationPayload } from "./payload";

const MAX_WIDTH = 520;
const [LEFT, TOP, RIGHT, BELOW] = [56, 12, 12, 44];

/** A plot with axes: functions from data to pixels. */
interface Plot {
  readonly x: (value: number) => number;
  readonly y: (value: number) => number;
  readonly width: number;
  readonly height: number;
}

type Range = readonly [number, number];

function axes(
  painter: Painter,
  { width, height }: { width: number; height: number },
  across: Range,
  up: Range,
  names: readonly [string, string],
  percentages = false,
): Plot {
  const { rule, muted } = colors.get();
  const scale =
    ([low, high]: Range, from: number, to: number) =>
    (value: number) =>
      from + ((to - from) * (value - low)) / (high - low || 1);
  const x = scale(across, LEFT, width - RIGHT);
  const y = scale(up, height - BELOW, TOP);
  const text = (value: number) =>
    percentages ? `${Math.round(100 * value)}%` : String(Math.round(value * 1000) / 1000).replace("-", "−");
  for (const value of roundNumbers(...up, 5)) {
    painter.line(LEFT, y(value), width - RIGHT, y(value), rule);
    painter.text(text(value), LEFT - 6, y(value), { align: "right", size: 11, color: muted });
  }
  for (const value of roundNumbers(...across, width < 360 ? 4 : 6)) {
    painter.line(x(value), height - BELOW, x(value), height - BELOW + 4, rule);
    painter.text(text(value), x(value), height - BELOW + 14, { align: "center", size: 11, color: muted });
  }
  painter.text(names[0], (LEFT + width - RIGHT) / 2, height - 10, { align: "center", size: 12, color: muted });
  painter.text(names[1], 8, (TOP + height - BELOW) / 2, { align: "center", size: 12, color: muted, rotated: true });
  return { x, y, width, height };
}

interface ChartProps {
  readonly label: string;
  readonly inputs: readonly unknown[];
  readonly height: number;
  draw(painter: Painter, width: number): void;
}

/** A canvas as wide as its column. */
function Chart({ label, inputs, height, draw }: ChartProps) {
  const [ref, width] = useWidth<HTMLDivElement>();
  const size = Math.min(MAX_WIDTH, width);
  return (
    <div ref={ref} class="evaluation-chart">
      {size > 0 && (
        <Canvas width={size} height={height} inputs={inputs} label={label} draw={(painter) => draw(painter, size)} />
      )}
    </div>
  );
}

const UNIT: Range = [0, 1];
const HEIGHT = 300;
const HISTOGRAM = 40; // pixels of the counts

export function Calibration({ payload: { calibration } }: { payload: EvaluationPayload }) {
  if (!calibration) return null;
  const filled = calibration.bins.filter((bin) => bin.count);
  const about = filled
    .map((bin) => `${fixedPercent(bin.confidence!, 0)} predicted, ${fixedPercent(bin.accuracy!, 0)} true`)
    .join("; ");
  return (
    <section aria-labelledby="evaluation-calibration">
      <h2 id="evaluation-calibration">Calibration</h2>
      <p class="muted">
        Of cases with a probability of 80%, 80% should be true: points on the diagonal. Below it the probabilities are
        too high. These are the probabilities of {calibration.of}; gray bars count the cases.
      </p>
      <Chart
        label={`Reliability diagram: ${about}`}
        inputs={[calibration]}
        height={HEIGHT}
        draw={(painter, width) => drawReliability(painter, calibration, width)}
      />
      <dl class="evaluation-facts">
        <Fact name="ECE" value={`${decimal(calibration.ece, 1)} points`} />
        <Fact name="Brier score" value={decimal(calibration.brier, 4)} />
        <Fact name="Log loss" value={decimal(calibration.log_loss, 4)} />
      </dl>
    </section>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function drawReliability(painter: Painter, { bins }: CalibrationData, width: number): void {
  const { accent, muted, other } = colors.get();
  const { x, y } = axes(painter, { width, height: HEIGHT }, UNIT, UNIT, ["mean probability", "fraction true"], true);
  painter.lines([x(0), y(0), x(1), y(1)], muted, 0.8, false, 1.5, [5, 5]);
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  for (const bin of bins) {
    const [left, right] = [x(bin.low) + 2, x(bin.high) - 2];
    const bar = (HISTOGRAM * bin.count) / most;
    painter.rect(left, y(0) - bar, right - left, bar, muted, 0.22);
  }
  const points = bins
    .filter((bin) => bin.count)
    .map((bin) => [x(bin.confidence!), y(bin.accuracy!), y(bin.confidence!)] as const);
  for (const [px, py, diagonal] of points) painter.line(px, py, px, diagonal, other, 0.8, 2);
  painter.lines(
    points.slice(1).flatMap(([px, py], i) => [points[i]![0], points[i]![1], px, py]),
    accent,
    1,
    false,
    2,
  );
  for (const [px, py] of points) painter.rect(px - 4, py - 4, 8, 8, accent);
}

export function calibrationDrawing({ calibration }: EvaluationPayload): (Drawing & { readonly title: string }) | null {
  if (!calibration) return null;
  return {
    title: `Calibration of the probabilities of ${calibration.of}: ECE ${decimal(calibration.ece, 1)}`,
    width: MAX_WIDTH,
    height: HEIGHT,
    draw: (painter) => drawReliability(painter, calibration, MAX_WIDTH),
  };
}

interface CurveLine {
  readonly name: string;
  readonly values: readonly number[];
  readonly color: "accent" | "other" | "ink";
  readonly dash: readonly number[];
}

const scoreLines = (curve: ThresholdCurve): readonly CurveLine[] => [
  { name: "Precision", values: curve.precision, color: "accent", dash: [] },
  { name: "Recall", values: curve.recall, color: "other", dash: [8, 4] },
  { name: "F1", values: curve.f1, color: "ink", dash: [2, 3] },
];

const CURVE_HEIGHT = 260;

function drawCurves(
  painter: Painter,
  thresholds: readonly number[],
  lines: readonly CurveLine[],
  at: number | null,
  width: number,
  across: Range,
  name: string,
): void {
  const palette = colors.get();
  const { x, y } = axes(painter, { width, height: CURVE_HEIGHT }, across, [0, 100], [name, "percent"]);
  for (const { values, color, dash } of lines) {
    const ends = thresholds
      .slice(1)
      .flatMap((threshold, i) => [x(thresholds[i]!), y(values[i]!), x(threshold), y(values[i + 1]!)]);
    painter.lines(ends, palette[color], 1, false, 2, dash);
  }
  if (at === null) return;
  painter.line(x(at), y(0), x(at), y(100), palette.muted, 0.9, 1.5);
  const index = thresholds.indexOf(at);
  for (const { values, color } of lines) painter.rect(x(at) - 4, y(values[index]!) - 4, 8, 8, palette[color]);
}

function Legend({ lines, index }: { lines: readonly CurveLine[]; index: number }) {
  return (
    <dl class="evaluation-facts">
      {lines.map(({ name, values, color, dash }) => (
        <div key={name}>
          <dt>
            <i class="swatch" style={{ background: swatch(`var(--${color})`, dash) }} aria-hidden="true" />
            {name}
          </dt>
          <dd>{decimal(values[index]!, 1)}</dd>
        </div>
      ))}
    </dl>
  );
}

function swatch(color: string, [line, gap]: readonly number[]): string {
  return line
    ? `repeating-linear-gradient(90deg, ${color} 0 ${line}px, transparent ${line}px ${line + (gap ?? 0)}px)`
    : color;
}

/** The curve that is selected, and the index of its threshold: 0.5 unless another is chosen. */
function selectedThreshold(
  { thresholds }: EvaluationPayload,
  { parameters }: Route,
): { number: number; curve: ThresholdCurve; index: number } | null {
  const number = integerParameter(parameters, "curve", thresholds.length);
  const curve = thresholds[number];
  if (!curve) return null;
  return { number, curve, index: integerParameter(parameters, "threshold", curve.thresholds.length, halfIndex(curve)) };
}

/** The lowest threshold from one half on, which gives the model's own predictions. */
const halfIndex = ({ thresholds }: ThresholdCurve) =>
  Math.max(0, thresholds.filter((threshold) => threshold >= 0.5).length - 1);

export function Threshold({ payload }: { payload: EvaluationPayload }) {
  const selected = selectedThreshold(payload, currentRoute.use());
  if (!selected) return null;
  const { number, curve, index } = selected;
  const { thresholds, best_threshold } = curve;
  const [truePositives, falsePositives] = [curve.true_positives[index]!, curve.false_positives[index]!];
  const select = (next: number) => setParameters({ threshold: String(next) });
  const lines = scoreLines(curve);
  return (
    <section aria-labelledby="evaluation-threshold">
      <h2 id="evaluation-threshold">Threshold</h2>
      <p class="muted">
        {curve.label} is predicted where its probability is at least the threshold. The best F1 is{" "}
        {decimal(curve.best_f1, 1)}, at {decimal(best_threshold, 3)}.
      </p>
      {payload.thresholds.length > 1 && (
        <div class="choices">
          <Select
            label="Label"
            options={Object.fromEntries(payload.thresholds.map((one, i) => [i, one.label]))}
            value={number}
            onSelect={(value) => setParameters({ curve: value, threshold: "" })}
          />
        </div>
      )}
      <Chart
        label={`Precision, recall and F1 of ${curve.label} against the threshold`}
        inputs={[curve, index]}
        height={CURVE_HEIGHT}
        draw={(painter, width) => drawCurves(painter, thresholds, lines, thresholds[index]!, width, UNIT, "threshold")}
      />
      <div class="choices evaluation-slider">
        <label>
          Threshold
          <input
            type="range"
            min={0}
            max={thresholds.length - 1}
            value={thresholds.length - 1 - index}
            aria-valuetext={decimal(thresholds[index]!, 3)}
            onInput={(event) => select(thresholds.length - 1 - Number(event.currentTarget.value))}
          />
          <output>{decimal(thresholds[index]!, 3)}</output>
        </label>
        <button type="button" onClick={() => select(halfIndex(curve))}>
          0.5
        </button>
        <button type="button" onClick={() => select(thresholds.indexOf(best_threshold))}>
          Best F1
        </button>
      </div>
      <Legend lines={lines} index={index} />
      <p>
        {count(truePositives + falsePositives)} of {count(curve.n)} examples are predicted to be {curve.label}:{" "}
        {count(truePositives)} rightly, {count(falsePositives)} wrongly;
        {` ${count(curve.positives - truePositives)} of ${count(curve.positives)} are missed.`}
      </p>
      <dl class="evaluation-facts">
        {curve.roc_auc !== null && <Fact name="ROC AUC" value={decimal(curve.roc_auc, 1)} />}
        {curve.average_precision !== null && (
          <Fact name="Average precision" value={decimal(curve.average_precision, 1)} />
        )}
      </dl>
    </section>
  );
}

export function thresholdDrawing(payload: EvaluationPayload): (Drawing & { readonly title: string }) | null {
  const selected = selectedThreshold(payload, currentRoute.get());
  if (!selected) return null;
  const { curve, index } = selected;
  const draw = (painter: Painter) =>
    drawCurves(painter, curve.thresholds, scoreLines(curve), curve.thresholds[index]!, MAX_WIDTH, UNIT, "threshold");
  return {
    title: `Precision (solid), recall (dashed) and F1 (dotted) of ${curve.label} against the threshold`,
    width: MAX_WIDTH,
    height: CURVE_HEIGHT,
    draw,
  };
}

export function NoAnswer({ payload }: { payload: EvaluationPayload }) {
  const { parameters } = currentRoute.use();
  const curve = payload.no_answer;
  if (!curve) return null;
  const { thresholds } = curve;
  const inUse = Math.max(0, thresholds.filter((threshold) => threshold <= curve.threshold).length - 1);
  const index = integerParameter(parameters, "threshold", thresholds.length, inUse);
  const lines: readonly CurveLine[] = [
    { name: "F1", values: curve.f1, color: "accent", dash: [] },
    { name: "Exact match", values: curve.exact_match, color: "other", dash: [8, 4] },
  ];
  return (
    <section aria-labelledby="evaluation-no-answer">
      <h2 id="evaluation-no-answer">Threshold for no answer</h2>
      <p class="muted">
        A question gets an answer if its score exceeds that of no answer by more than the threshold,{" "}
        {decimal(curve.threshold, 2)}. The best on these questions is {decimal(curve.best_threshold, 2)},
        {` with an F1 of ${decimal(curve.best_f1, 1)}.`}
      </p>
      <Chart
        label="F1 and exact match against the threshold for no answer"
        inputs={[curve, index]}
        height={CURVE_HEIGHT}
        draw={(painter, width) =>
          drawCurves(
            painter,
            thresholds,
            lines,
            thresholds[index]!,
            width,
            [thresholds[0]!, thresholds.at(-1)!],
            "threshold",
          )
        }
      />
      <div class="choices evaluation-slider">
        <label>
          Threshold
          <input
            type="range"
            min={0}
            max={thresholds.length - 1}
            value={index}
            aria-valuetext={decimal(thresholds[index]!, 2)}
            onInput={(event) => setParameters({ threshold: event.currentTarget.value })}
          />
          <output>{decimal(thresholds[index]!, 2)}</output>
        </label>
      </div>
      <Legend lines={lines} index={index} />
      <p>
        {count(curve.unanswered[index]!)} of {count(payload.n)} questions get no answer.
      </p>
    </section>
  );
}

export function Regression({ payload: { points, residuals } }: { payload: EvaluationPayload }) {
  if (!residuals) return null;
  const values = points.flat();
  const range: Range = [Math.min(...values), Math.max(...values)];
  const draw = (painter: Painter, width: number) => {
    const { accent, muted } = colors.get();
    const { x, y } = axes(painter, { width, height: HEIGHT }, range, range, ["true value", "predicted value"]);
    painter.lines([x(range[0]), y(range[0]), x(range[1]), y(range[1])], muted, 0.8, false, 1.5, [5, 5]);
    for (const [truth, predicted] of points) painter.rect(x(truth) - 2, y(predicted) - 2, 4, 4, accent, 0.45);
  };
  return (
    <>
      <section aria-labelledby="evaluation-regression">
        <h2 id="evaluation-regression">Predicted and true values</h2>
        <p class="muted">One point for each of {count(points.length)} examples; right ones are on the diagonal.</p>
        <Chart
          label={`Predicted against true values of ${count(points.length)} examples`}
          inputs={[points]}
          height={HEIGHT}
          draw={draw}
        />
      </section>
      <section aria-labelledby="evaluation-residuals">
        <h2 id="evaluation-residuals">Residuals</h2>
        <p class="muted">
          Predicted minus true value: the mean, and quantiles. Half of the predictions are between those of 25% and 75%.
        </p>
        <DataTable
          label="Residuals"
          headers={["", "Residual"]}
          rows={[
            ["Mean", residuals.mean] as const,
            ...Object.entries(residuals.quantiles).map(
              ([level, value]) => [`${Math.round(100 * Number(level))}%`, value] as const,
            ),
          ].map(([name, value]) => [name, decimal(value, 2, true)])}
        />
      </section>
    </>
  );
}
