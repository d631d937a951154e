// Two sentences or a grid of them: controls, charts, caption and numbers.
import { useMemo } from "preact/hooks";
import { ButtonGroup, DataTable, Select } from "../../components";
import { count, fixedPercent } from "../../format";
import { currentRoute, integerParameter, navigate, type Route, setParameters } from "../../route";
import type { PairView } from "../../types";
import type { Drawing, Table } from "../../view";
import { drawScatter, ScatterPlot } from "./scatter";
import { type Charts, gridParts, pairChart, probability, type Selection, selectionOf, selectTokens, squareChart, tintOf, valuesOf } from "./selection";

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
      <ButtonGroup title="Number of Tokens" options={numbers} value={selection.number ? String(selection.number) : "All"} onSelect={(value) => setParameters({ number: value === "All" ? "0" : value })} />
      <ButtonGroup title="Chart Type" options={charts} value={selection.chart} onSelect={(chart) => setParameters({ chart })} />
      <Reset />
    </div>
  );
}

function describePair(payload: Charts, pair: PairView): (token: number) => string {
  return (token) => {
    const [a, b] = [pair.a, pair.b].map((sentence) => fixedPercent(probability(payload, sentence, token), 3));
    return `${payload.tokens[token]}: ${pair.labels[0]} ${a}, ${pair.labels[1]} ${b}, logits ${signed(valuesOf(payload, pair).difference[token]!)}`;
  };
}

export function ShowPair({ payload }: { payload: Charts }) {
  const selection = selectionOf(payload, currentRoute.use());
  const pair = payload.pairs[0]!;
  const chart = useMemo(() => pairChart(payload, pair, selection, tintOf(payload, pair, selection)), [payload, selection.number, selection.chart]);
  const caption = pair.captions[selection.chart]![String(selection.number)]!;
  const { difference } = valuesOf(payload, pair);
  const tokens = selectTokens(payload, pair, selection);
  return (
    <section class="compare" aria-label="Comparison of two sentences">
      <Controls payload={payload} selection={selection} />
      <p class="caption">{caption}</p>
      <div class="pair">
        <ScatterPlot chart={chart} label={`Scatter plot of ${chart.tokens.length} tokens. ${caption}`} maxSize={640} describe={describePair(payload, pair)} />
        <DataTable
          label="Numbers"
          caption={`${tokens.length > MAX_ROWS ? `${MAX_ROWS} of the ${count(tokens.length)} tokens shown` : `${tokens.length} tokens`}, highest mean first`}
          headers={["token", { content: pair.labels[0], class: "side-a" }, { content: pair.labels[1], class: "side-b" }, "difference"]}
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
  const tint = useMemo(() => tintOf(payload, payload.pairs[coloredBy]!, selection), [payload, coloredBy, selection.number, selection.chart]);
  const common = { payload, selection, tint, coloredBy };
  return (
    <section class="compare" aria-label="Comparison of a grid of sentences">
      <Controls payload={payload} selection={selection} />
      <div class="choices">
        <AxisSelects payload={payload} name="row" labels={payload.rows} />
        <AxisSelects payload={payload} name="column" labels={payload.columns} />
      </div>
      <p class="caption">{payload.pairs[coloredBy]!.captions[selection.chart]![String(selection.number)]}</p>
      <div class="grid-charts">
        {parts.map((part) => ("pair" in part ? <PairCell key={`p${part.pair}`} index={part.pair} {...common} /> : <SquareCell key={`s${part.square}`} index={part.square} {...common} />))}
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
  const chart = useMemo(() => pairChart(payload, pair, selection, tint), [payload, pair, selection.number, selection.chart, tint]);
  return (
    <div>
      <button type="button" class="title" aria-pressed={coloredBy === index} title="color all charts by this difference" onClick={() => setParameters({ color: String(index) })}>
        {pair.labels[0]} · {pair.labels[1]}
      </button>
      <ScatterPlot chart={chart} label={pair.captions[selection.chart]![String(selection.number)]!} maxSize={380} describe={describePair(payload, pair)} />
    </div>
  );
}

function SquareCell({ payload, index, selection, tint, coloredBy }: CellProps) {
  const chart = useMemo(() => squareChart(payload, index, selection, tint, coloredBy), [payload, index, selection.number, tint, coloredBy]);
  const { across, up } = payload.squares[index]!;
  const pairs = [payload.pairs[across]!, payload.pairs[up]!];
  const describe = (token: number) => {
    const [x, y] = pairs.map((pair) => valuesOf(payload, pair).difference[token]!) as [number, number];
    return `${payload.tokens[token]}: ${signed(x)} and ${signed(y)}, difference of differences ${signed(x - y)}`;
  };
  return (
    <div>
      <p class="title">difference of differences</p>
      <ScatterPlot chart={chart} label={`${pairs[0]!.labels.join(" minus ")} across, ${pairs[1]!.labels.join(" minus ")} up`} maxSize={380} describe={describe} />
    </div>
  );
}

export function chartsDrawing(payload: Charts, route: Route): Drawing {
  const selection = selectionOf(payload, route);
  const { parts, coloredBy } = payload.kind === "grid" ? gridParts(payload, route) : { parts: [{ pair: 0 }], coloredBy: 0 };
  const tint = tintOf(payload, payload.pairs[coloredBy]!, selection);
  const charts = parts.map((part) =>
    "pair" in part ? pairChart(payload, payload.pairs[part.pair]!, selection, tint) : squareChart(payload, part.square, selection, tint, coloredBy),
  );
  const size = charts.length > 1 ? 400 : 700;
  const columns = Math.min(3, charts.length);
  return {
    width: size * columns,
    height: size * Math.ceil(charts.length / columns),
    draw: (painter) => charts.forEach((chart, i) => drawScatter(painter, chart, { x: size * (i % columns), y: size * Math.floor(i / columns), size })),
  };
}

export function chartsTable(payload: Charts, route: Route): Table {
  const pair = payload.pairs[payload.kind === "grid" ? gridParts(payload, route).coloredBy : 0]!;
  const { a, b, mean, difference } = valuesOf(payload, pair);
  return {
    headers: ["token", "logit_a", "logit_b", "probability_a", "probability_b", "mean", "difference"],
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
