// Two sentences or a grid of them: the controls, the charts, the caption and the numbers.
import { useMemo } from "preact/hooks";
import type { Route } from "../../route";
import { setParameters, navigate, currentRoute, integerParameter } from "../../route";
import { pairChart, section, squareChart, tints } from "./charts";
import type { Charts, Pair } from "./payload";
import { Plot } from "./plot";
import type { Choice } from "./selection";
import { choiceOf, probability, shown, valuesOf } from "./selection";

const LISTED = 30;
const percent = (value: number) => `${(100 * value).toFixed(3)}%`;
const signed = (value: number) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);

export function Reset() {
  return (
    <button type="button" onClick={() => navigate({ view: currentRoute.get().view, parameters: {} }, { step: true })}>
      ↻ Reset
    </button>
  );
}

function Controls({ payload, choice }: { payload: Charts; choice: Choice }) {
  return (
    <div class="choices">
      <fieldset>
        <legend>Number of Tokens</legend>
        <span class="group">
          {payload.numbers.map((number) => (
            <button key={number} type="button" aria-pressed={choice.number === number} onClick={() => setParameters({ number: String(number) })}>
              {number || "All"}
            </button>
          ))}
        </span>
      </fieldset>
      <fieldset>
        <legend>Chart Type</legend>
        <span class="group">
          {(["likelihoods", "differences"] as const).map((chart) => (
            <button key={chart} type="button" aria-pressed={choice.chart === chart} onClick={() => setParameters({ chart })}>
              {chart === "likelihoods" ? "Likelihoods" : "Differences"}
            </button>
          ))}
        </span>
      </fieldset>
      <Reset />
    </div>
  );
}

function teller(payload: Charts, pair: Pair): (place: number) => string {
  return (at) => {
    const [a, b] = pair.labels;
    const shares = `${a} ${percent(probability(payload, pair.a, at))}, ${b} ${percent(probability(payload, pair.b, at))}`;
    return `${payload.tokens[at]}: ${shares}, logits ${signed(valuesOf(payload, pair).difference[at]!)}`;
  };
}

/** The rows and columns of a grid that are looked at, and the pair that gives the colours. */
export function gridOf(payload: Charts, { parameters }: Route) {
  const two = (name: string, count: number): [number, number] => {
    const first = integerParameter(parameters, `${name}1`, count);
    const second = integerParameter(parameters, `${name}2`, count, first ? 0 : 1);
    return first < second ? [first, second] : first > second ? [second, first] : [0, Math.min(1, count - 1)];
  };
  const parts = section(payload, two("row", payload.rows!.length), two("column", payload.columns!.length));
  const pairs = parts.flatMap(({ pair }) => (pair === undefined ? [] : [pair]));
  const wanted = integerParameter(parameters, "color", payload.pairs.length, pairs[1] ?? pairs[0]!);
  return { parts, by: pairs.includes(wanted) ? wanted : (pairs[1] ?? pairs[0]!) };
}

export function ShowPair({ payload }: { payload: Charts }) {
  const here = currentRoute.use();
  const choice = choiceOf(payload, here);
  const pair = payload.pairs[0]!;
  const chart = useMemo(() => pairChart(payload, pair, choice, tints(payload, pair, choice)), [payload, choice.number, choice.chart]);
  const caption = pair.captions[choice.chart][String(choice.number)]!;
  return (
    <section class="compare" aria-label="Comparison of two sentences">
      <Controls payload={payload} choice={choice} />
      <p class="caption">{caption}</p>
      <div class="pair">
        <Plot chart={chart} label={`Scatter of ${chart.places.length} tokens. ${caption}`} most={640} tell={teller(payload, pair)} />
        <Numbers payload={payload} pair={pair} choice={choice} />
      </div>
      <p class="muted warning">⚠ {payload.warning}</p>
    </section>
  );
}

function Numbers({ payload, pair, choice }: { payload: Charts; pair: Pair; choice: Choice }) {
  const places = shown(payload, pair, choice);
  const { difference } = valuesOf(payload, pair);
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Numbers">
      <table>
        <caption class="muted">
          {places.length > LISTED ? `${LISTED} of the ${places.length.toLocaleString("en")} tokens shown` : `${places.length} tokens`}, the highest mean first
        </caption>
        <thead>
          <tr>
            <th scope="col">token</th>
            <th scope="col" class="side-a">{pair.labels[0]}</th>
            <th scope="col" class="side-b">{pair.labels[1]}</th>
            <th scope="col">difference</th>
          </tr>
        </thead>
        <tbody>
          {Array.from(places.subarray(0, LISTED), (at) => (
            <tr key={at}>
              <th scope="row">{payload.tokens[at]}</th>
              <td>{percent(probability(payload, pair.a, at))}</td>
              <td>{percent(probability(payload, pair.b, at))}</td>
              <td>{signed(difference[at]!)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Axis({ payload, name, names }: { payload: Charts; name: string; names: readonly string[] }) {
  if (names.length < 3) return null;
  const { parameters } = currentRoute.use();
  return (
    <>
      {[1, 2].map((number) => (
        <label key={number}>
          {number === 1 ? `${name}s` : "and"}
          <select value={integerParameter(parameters, `${name}${number}`, names.length, number - 1)} onChange={(event) => setParameters({ [`${name}${number}`]: event.currentTarget.value })}>
            {names.map((one, value) => (
              <option key={value} value={value}>
                {one}
              </option>
            ))}
          </select>
        </label>
      ))}
      {payload.rows!.length > 1 && <span class="muted">of {names.length}</span>}
    </>
  );
}

export function ShowGrid({ payload }: { payload: Charts }) {
  const here = currentRoute.use();
  const choice = choiceOf(payload, here);
  const { parts, by } = gridOf(payload, here);
  const tint = useMemo(() => tints(payload, payload.pairs[by]!, choice), [payload, by, choice.number, choice.chart]);
  return (
    <section class="compare" aria-label="Comparison of a grid of sentences">
      <Controls payload={payload} choice={choice} />
      <div class="choices">
        <Axis payload={payload} name="row" names={payload.rows!} />
        <Axis payload={payload} name="column" names={payload.columns!} />
      </div>
      <p class="caption">{payload.pairs[by]!.captions[choice.chart][String(choice.number)]}</p>
      <div class="grid-charts">
        {parts.map(({ pair, square }) =>
          pair !== undefined ? (
            <Cell key={`p${pair}`} payload={payload} number={pair} choice={choice} tint={tint} by={by} />
          ) : (
            <Square key={`s${square}`} payload={payload} number={square!} choice={choice} tint={tint} by={by} />
          ),
        )}
      </div>
      <p class="muted warning">⚠ {payload.warning}</p>
    </section>
  );
}

interface Part {
  readonly payload: Charts;
  readonly number: number;
  readonly choice: Choice;
  readonly by: number;
  tint(place: number): number;
}

function Cell({ payload, number, choice, tint, by }: Part) {
  const pair = payload.pairs[number]!;
  const chart = useMemo(() => pairChart(payload, pair, choice, tint), [payload, pair, choice.number, choice.chart, tint]);
  return (
    <div>
      <button type="button" class="title" aria-pressed={by === number} title="colour all charts by this difference" onClick={() => setParameters({ color: String(number) })}>
        {pair.labels[0]} · {pair.labels[1]}
      </button>
      <Plot chart={chart} label={pair.captions[choice.chart][String(choice.number)]!} most={380} tell={teller(payload, pair)} />
    </div>
  );
}

function Square({ payload, number, choice, tint, by }: Part) {
  const chart = useMemo(() => squareChart(payload, number, choice, tint, by), [payload, number, choice.number, tint, by]);
  const { across, up } = payload.squares![number]!;
  const [first, second] = [payload.pairs[across]!, payload.pairs[up]!];
  const tell = (at: number) => {
    const [x, y] = [first, second].map((pair) => valuesOf(payload, pair).difference[at]!) as [number, number];
    return `${payload.tokens[at]}: ${signed(x)} against ${signed(y)}, difference of differences ${signed(x - y)}`;
  };
  return (
    <div>
      <p class="title">difference of differences</p>
      <Plot chart={chart} label={`${first.labels.join(" less ")} across, ${second.labels.join(" less ")} up`} most={380} tell={tell} />
    </div>
  );
}
