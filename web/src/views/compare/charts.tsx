// Two sentences or a grid of them: controls, scatter plots with as many labels as fit, caption and numbers.
import { ticks as roundNumbers } from "d3-array";
import { useMemo, useState } from "preact/hooks";
import { inStudio } from "../../api";
import { Canvas, pointerIn, useWidth } from "../../canvas";
import { ButtonGroup, DataTable, Select } from "../../components";
import { count, fixedPercent } from "../../format";
import type { Painter } from "../../painter";
import { currentRoute, integerParameter, navigate, type Route, setParameters } from "../../route";
import { type Colors, colors } from "../../theme";
import type { ChartAxes, PairView } from "../../types";
import type { Drawing, Table } from "../../view";
import {
  type Charts,
  gridParts,
  pairChart,
  probability,
  type Selection,
  selectionOf,
  selectTokens,
  squareChart,
  tintOf,
  valuesOf,
} from "./selection";

const MAX_ROWS = 30;
const signed = (value: number) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);

export function Reset() {
  return (
    <button type="button" onClick={() => navigate({ view: currentRoute.get().view, parameters: {} }, { push: true })}>
      ↻ Reset
    </button>
  );
}

export function Warning({ text }: { text: string }) {
  return <p class="muted warning">⚠ {text}</p>;
}

function Controls({ payload, selection }: { payload: Charts; selection: Selection }) {
  const numbers = payload.numbers.map((number) => (number ? String(number) : "All"));
  const charts = { likelihoods: "Likelihoods", differences: "Differences" };
  return (
    <div class="choices">
      <ButtonGroup
        title="Number of Tokens"
        options={numbers}
        value={selection.number ? String(selection.number) : "All"}
        onSelect={(value) => setParameters({ number: value === "All" ? "0" : value })}
      />
      <ButtonGroup
        title="Chart Type"
        options={charts}
        value={selection.chart}
        onSelect={(chart) => setParameters({ chart })}
      />
      <ValueSelect values={payload.values} />
      <Reset />
    </div>
  );
}

/** What is compared; the studio asks the library again when it changes. */
export function ValueSelect({ values }: { values: Charts["values"] }) {
  if (!inStudio()) return <span class="muted">Values: {values}</span>;
  const options = { "log-probabilities": "Log-probabilities", logits: "Logits, as in the explorable" };
  return (
    <ButtonGroup
      title="Values"
      options={options}
      value={values}
      onSelect={(value) => setParameters({ values: value })}
    />
  );
}

function describePair(payload: Charts, pair: PairView): (token: number) => string {
  return (token) => {
    const [a, b] = [pair.a, pair.b].map((sentence) => fixedPercent(probability(payload, sentence, token), 3));
    return (
      `${payload.tokens[token]}: ${pair.labels[0]} ${a}, ${pair.labels[1]} ${b}, difference of ${payload.values} ` +
      `${signed(valuesOf(payload, pair).difference[token]!)}`
    );
  };
}

export function ShowPair({ payload }: { payload: Charts }) {
  const selection = selectionOf(payload, currentRoute.use());
  const pair = payload.pairs[0]!;
  const chart = useMemo(
    () => pairChart(payload, pair, selection, tintOf(payload, pair, selection)),
    [payload, selection.number, selection.chart],
  );
  const caption = pair.captions[selection.chart]![String(selection.number)]!;
  const { difference } = valuesOf(payload, pair);
  const tokens = selectTokens(payload, pair, selection);
  return (
    <section class="compare" aria-label="Comparison of two sentences">
      <Controls payload={payload} selection={selection} />
      <div class="pair">
        <ScatterPlot
          chart={chart}
          label={`Scatter plot of ${chart.tokens.length} tokens. ${caption}`}
          maxSize={640}
          describe={describePair(payload, pair)}
        />
        <DataTable
          label="Numbers"
          caption={
            (tokens.length > MAX_ROWS
              ? `${MAX_ROWS} of the ${count(tokens.length)} tokens shown, `
              : `${tokens.length} tokens, `) + `highest mean first; differences of ${payload.values}`
          }
          headers={[
            "token",
            { content: pair.labels[0], class: "side-a" },
            { content: pair.labels[1], class: "side-b" },
            "difference",
          ]}
          rows={Array.from(tokens.subarray(0, MAX_ROWS), (token) => [
            payload.tokens[token],
            fixedPercent(probability(payload, pair.a, token), 3),
            fixedPercent(probability(payload, pair.b, token), 3),
            signed(difference[token]!),
          ])}
        />
      </div>
      <Warning text={payload.warning} />
    </section>
  );
}

/** Two selects for the rows or columns of a grid that has more than two. */
function AxisSelects({ payload, name, labels }: { payload: Charts; name: string; labels: readonly string[] }) {
  const { parameters } = currentRoute.use();
  if (labels.length < 3) return null;
  return (
    <>
      {[1, 2].map((number) => (
        <Select
          key={number}
          label={number === 1 ? `${name}s` : "and"}
          options={Object.fromEntries(labels.entries())}
          value={integerParameter(parameters, `${name}${number}`, labels.length, number - 1)}
          onSelect={(value) => setParameters({ [`${name}${number}`]: value })}
        />
      ))}
      {payload.rows.length > 1 && <span class="muted">of {labels.length}</span>}
    </>
  );
}

export function ShowGrid({ payload }: { payload: Charts }) {
  const route = currentRoute.use();
  const selection = selectionOf(payload, route);
  const { parts, coloredBy } = gridParts(payload, route);
  const tint = useMemo(
    () => tintOf(payload, payload.pairs[coloredBy]!, selection),
    [payload, coloredBy, selection.number, selection.chart],
  );
  const common = { payload, selection, tint, coloredBy };
  return (
    <section class="compare" aria-label="Comparison of a grid of sentences">
      <Controls payload={payload} selection={selection} />
      <div class="choices">
        <AxisSelects payload={payload} name="row" labels={payload.rows} />
        <AxisSelects payload={payload} name="column" labels={payload.columns} />
      </div>
      <div class="grid-charts">
        {parts.map((part) =>
          "pair" in part ? (
            <PairCell key={`p${part.pair}`} index={part.pair} {...common} />
          ) : (
            <SquareCell key={`s${part.square}`} index={part.square} {...common} />
          ),
        )}
      </div>
      <Warning text={payload.warning} />
    </section>
  );
}

interface CellProps {
  readonly payload: Charts;
  readonly index: number;
  readonly selection: Selection;
  readonly coloredBy: number;
  tint(token: number): number;
}

function PairCell({ payload, index, selection, tint, coloredBy }: CellProps) {
  const pair = payload.pairs[index]!;
  const chart = useMemo(
    () => pairChart(payload, pair, selection, tint),
    [payload, pair, selection.number, selection.chart, tint],
  );
  return (
    <div>
      <button
        type="button"
        class="title"
        aria-pressed={coloredBy === index}
        title="color all charts by this difference"
        onClick={() => setParameters({ color: String(index) })}
      >
        {pair.labels[0]} · {pair.labels[1]}
      </button>
      <ScatterPlot
        chart={chart}
        label={pair.captions[selection.chart]![String(selection.number)]!}
        maxSize={380}
        describe={describePair(payload, pair)}
      />
    </div>
  );
}

function SquareCell({ payload, index, selection, tint, coloredBy }: CellProps) {
  const chart = useMemo(
    () => squareChart(payload, index, selection, tint, coloredBy),
    [payload, index, selection.number, tint, coloredBy],
  );
  const { across, up } = payload.squares[index]!;
  const pairs = [payload.pairs[across]!, payload.pairs[up]!];
  const describe = (token: number) => {
    const [x, y] = pairs.map((pair) => valuesOf(payload, pair).difference[token]!) as [number, number];
    return `${payload.tokens[token]}: ${signed(x)} and ${signed(y)}, difference of differences ${signed(x - y)}`;
  };
  return (
    <div>
      <p class="title">difference of differences</p>
      <ScatterPlot
        chart={chart}
        label={`${pairs[0]!.labels.join(" minus ")} across, ${pairs[1]!.labels.join(" minus ")} up`}
        maxSize={380}
        describe={describe}
      />
    </div>
  );
}

export function chartsDrawing(payload: Charts, route: Route): Drawing {
  const selection = selectionOf(payload, route);
  const { parts, coloredBy } =
    payload.kind === "grid" ? gridParts(payload, route) : { parts: [{ pair: 0 }], coloredBy: 0 };
  const tint = tintOf(payload, payload.pairs[coloredBy]!, selection);
  const charts = parts.map((part) =>
    "pair" in part
      ? pairChart(payload, payload.pairs[part.pair]!, selection, tint)
      : squareChart(payload, part.square, selection, tint, coloredBy),
  );
  const size = charts.length > 1 ? 400 : 700;
  const columns = Math.min(3, charts.length);
  return {
    width: size * columns,
    height: size * Math.ceil(charts.length / columns),
    draw: (painter) =>
      charts.forEach((chart, i) =>
        drawScatter(painter, chart, { x: size * (i % columns), y: size * Math.floor(i / columns), size }),
      ),
  };
}

export function chartsTable(payload: Charts, route: Route): Table {
  const pair = payload.pairs[payload.kind === "grid" ? gridParts(payload, route).coloredBy : 0]!;
  const { a, b, mean, difference } = valuesOf(payload, pair);
  return {
    headers: ["token", "value_a", "value_b", "probability_a", "probability_b", "mean", "difference"],
    rows: Array.from(selectTokens(payload, pair, selectionOf(payload, route)), (token) => [
      payload.tokens[token]!,
      a[token]!,
      b[token]!,
      probability(payload, pair.a, token),
      probability(payload, pair.b, token),
      mean[token]!,
      difference[token]!,
    ]),
  };
}

export interface Scatter {
  readonly labels: readonly string[];
  /** Indices of the tokens shown. */
  readonly tokens: Uint32Array;
  x(token: number): number;
  y(token: number): number;
  /** From -1, the color of the second sentence, to 1, the color of the first. */
  tint(token: number): number;
  readonly across: readonly [number, number];
  readonly up: readonly [number, number];
  readonly axes: ChartAxes;
  /** The sentence whose color an axis label has. */
  readonly sides: Readonly<Partial<Record<keyof ChartAxes, "a" | "b">>>;
  readonly diagonal: boolean;
  readonly dot: number;
}

const FONT = 11;
const CHARACTER = 6.1; // approximate width in pixels
const MARGIN = { left: 44, right: 30, top: 10, bottom: 46 };

interface PlotProps {
  readonly chart: Scatter;
  readonly label: string;
  readonly maxSize: number;
  /** Text for the token under the pointer. */
  describe(token: number): string;
}

export function ScatterPlot({ chart, label, maxSize, describe }: PlotProps) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [pointed, setPointed] = useState<number>();
  const size = Math.min(maxSize, width);
  const move = (event: PointerEvent) => {
    const { x, y } = pointerIn(event);
    setPointed(nearest(chart, { x: 0, y: 0, size }, x, y));
  };
  return (
    <div ref={element} class="plot">
      <Canvas
        width={size}
        height={size}
        draw={(painter) => drawScatter(painter, chart, { x: 0, y: 0, size })}
        inputs={[chart, size]}
        label={label}
        canvas={{ onPointerMove: move, onPointerDown: move, onPointerLeave: () => setPointed(undefined) }}
      />
      <p class="status muted">{pointed !== undefined && chart.tokens.includes(pointed) ? describe(pointed) : " "}</p>
    </div>
  );
}

export function tintColor(tint: number, { dark, accent, other }: Colors): string {
  const end = tint > 0 ? other : accent;
  const grey = dark ? "#8b949e" : "#8c959f";
  const mixed = [1, 3, 5].map((at) => {
    const from = Number.parseInt(grey.slice(at, at + 2), 16);
    const to = Number.parseInt(end.slice(at, at + 2), 16);
    return Math.round(from + (to - from) * Math.min(1, Math.abs(tint)))
      .toString(16)
      .padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}

/** About six round numbers in a range. */
export function ticks([low, high]: readonly [number, number]): number[] {
  return roundNumbers(low, high, 6);
}

export const tickLabel = (value: number) => String(Math.round(value * 100) / 100).replace("-", "−");

/** The square that a plot fills. */
interface Box {
  readonly x: number;
  readonly y: number;
  readonly size: number;
}

function frameOf(chart: Scatter, box: Box) {
  const width = box.size - MARGIN.left - MARGIN.right;
  const height = box.size - MARGIN.top - MARGIN.bottom;
  const [left, top] = [box.x + MARGIN.left, box.y + MARGIN.top];
  const span = (range: readonly [number, number]) => range[1] - range[0] || 1;
  return {
    left,
    top,
    width,
    height,
    x: (value: number) => left + (width * (value - chart.across[0])) / span(chart.across),
    y: (value: number) => top + height - (height * (value - chart.up[0])) / span(chart.up),
  };
}

type Frame = ReturnType<typeof frameOf>;

export function drawScatter(painter: Painter, chart: Scatter, box: Box): void {
  const theme = colors.get();
  const frame = frameOf(chart, box);
  drawAxes(painter, chart, frame, theme);
  const { x, y } = frame;
  const half = chart.dot / 2;
  for (const token of chart.tokens) {
    painter.rect(
      x(chart.x(token)) - half,
      y(chart.y(token)) - half,
      chart.dot,
      chart.dot,
      tintColor(chart.tint(token), theme),
      0.75,
    );
  }
  for (const label of placeLabels(chart, frame)) {
    painter.text(label.text, label.x, label.y, { size: FONT, color: theme.ink, align: label.align });
  }
}

function drawAxes(painter: Painter, chart: Scatter, { x, y, left, top, width, height }: Frame, theme: Colors): void {
  const [right, bottom] = [left + width, top + height];
  for (const tick of ticks(chart.across)) {
    painter.line(x(tick), top, x(tick), bottom, theme.rule, tick === 0 ? 1 : 0.6);
    painter.text(tickLabel(tick), x(tick), bottom + 11, { size: 10, align: "center", color: theme.muted });
  }
  for (const tick of ticks(chart.up)) {
    painter.line(left, y(tick), right, y(tick), theme.rule, tick === 0 ? 1 : 0.6);
    painter.text(tickLabel(tick), left - 6, y(tick), { size: 10, align: "right", color: theme.muted });
  }
  const [low, high] = [Math.max(chart.across[0], chart.up[0]), Math.min(chart.across[1], chart.up[1])];
  if (chart.diagonal && low < high) painter.line(x(low), y(low), x(high), y(high), theme.muted, 0.7);
  const { axes } = chart;
  const size = width < 300 ? 12 : 13;
  const style = (end: keyof ChartAxes) => ({
    size,
    color: chart.sides[end] ? tintColor(chart.sides[end] === "a" ? 1 : -1, theme) : theme.ink,
  });
  const [below, middle] = [bottom + 32, left + width / 2];
  if (axes.left) {
    painter.text(axes.left, middle - 8, below, { ...style("left"), align: "right" });
    painter.text(axes.right, middle + 8, below, style("right"));
  } else {
    painter.text(axes.right, middle, below, { ...style("right"), align: "center" });
  }
  const [beside, center] = [right + 18, top + height / 2];
  if (axes.down) {
    painter.text(axes.down, beside, center + 8, { ...style("down"), align: "right", rotated: true });
    painter.text(axes.up, beside, center - 8, { ...style("up"), rotated: true });
  } else {
    painter.text(axes.up, beside, center, { ...style("up"), align: "center", rotated: true });
  }
}

interface Label {
  readonly text: string;
  readonly x: number;
  readonly y: number;
  readonly align: "left" | "right";
}

/** Labels that do not overlap: alternately of the tokens with the highest mean and with the largest difference. */
function placeLabels(chart: Scatter, { x, y, left, width }: Frame): Label[] {
  const byTint = Array.from(chart.tokens).sort((one, two) => Math.abs(chart.tint(two)) - Math.abs(chart.tint(one)));
  const taken = new Set<string>();
  const labels: Label[] = [];
  const tried = new Set<number>();
  const cell = 7;
  const most = Math.max(40, (width * width) / 1500);
  for (let turn = 0; turn < byTint.length && turn < 1500 && labels.length < most; turn++) {
    for (const token of [chart.tokens[turn]!, byTint[turn]!]) {
      if (tried.has(token)) continue;
      tried.add(token);
      const text = chart.labels[token]!;
      const length = text.length * CHARACTER;
      const at = { x: x(chart.x(token)), y: y(chart.y(token)) };
      const onLeft = at.x + length + 6 > left + width;
      const start = onLeft ? at.x - length - 5 : at.x + 5;
      const cells: string[] = [];
      for (let column = Math.floor(start / cell); column <= Math.floor((start + length) / cell); column++) {
        for (let row = Math.floor((at.y - 5) / cell); row <= Math.floor((at.y + 5) / cell); row++)
          cells.push(`${column},${row}`);
      }
      if (cells.some((one) => taken.has(one)) || start < left - 30) continue;
      cells.forEach((one) => taken.add(one));
      labels.push({ text, x: onLeft ? at.x - 5 : at.x + 5, y: at.y, align: onLeft ? "right" : "left" });
    }
  }
  return labels;
}

/** The token nearest to a point, if it is at most 20 pixels away. */
function nearest(chart: Scatter, box: Box, px: number, py: number): number | undefined {
  const { x, y } = frameOf(chart, box);
  let best: number | undefined;
  let least = 20 * 20;
  for (const token of chart.tokens) {
    const distance = (x(chart.x(token)) - px) ** 2 + (y(chart.y(token)) - py) ** 2;
    if (distance < least) [best, least] = [token, distance];
  }
  return best;
}
