// Fill in the blank, compared: what a model puts into the blank of two sentences, of a grid of them, or over the years.
import type { Route } from "../route";
import { colors } from "../theme";
import type { Drawing, Table, View } from "../view";
import { pairChart, squareChart, tints } from "./compare/charts";
import "./compare/compare.css";
import type { Charts, Comparison } from "./compare/payload";
import type { Scatter } from "./compare/scatter";
import { drawScatter } from "./compare/scatter";
import { choiceOf, probability, shown, valuesOf } from "./compare/selection";
import { drawSentence, ShowSentence, tableOfSentence } from "./compare/sentence";
import { gridOf, ShowGrid, ShowPair } from "./compare/show";
import { ShowSweep, sweepDrawing, tableOfSweep } from "./compare/sweep";

function Show({ payload }: { payload: Comparison }) {
  if (payload.kind === "sentence") return <ShowSentence payload={payload} />;
  if (payload.kind === "sweep") return <ShowSweep payload={payload} />;
  return payload.kind === "grid" ? <ShowGrid payload={payload} /> : <ShowPair payload={payload} />;
}

function chartsDrawing(payload: Charts, here: Route): Drawing {
  const choice = choiceOf(payload, here);
  const { parts, by } = payload.kind === "grid" ? gridOf(payload, here) : { parts: [{ pair: 0, square: undefined }], by: 0 };
  const tint = tints(payload, payload.pairs[by]!, choice);
  const charts = parts.map(({ pair, square }): Scatter =>
    pair !== undefined ? pairChart(payload, payload.pairs[pair]!, choice, tint) : squareChart(payload, square!, choice, tint, by),
  );
  const size = charts.length > 1 ? 400 : 700;
  const columns = Math.min(3, charts.length);
  return {
    width: size * columns,
    height: size * Math.ceil(charts.length / columns),
    draw(painter) {
      charts.forEach((chart, number) => {
        const room = { x: size * (number % columns), y: size * Math.floor(number / columns), size };
        drawScatter(painter, chart, room, colors.get());
      });
    },
  };
}

function chartsTable(payload: Charts, here: Route): Table {
  const choice = choiceOf(payload, here);
  const pair = payload.pairs[payload.kind === "grid" ? gridOf(payload, here).by : 0]!;
  const { a, b, mean, difference } = valuesOf(payload, pair);
  return {
    headers: ["token", "logit_a", "logit_b", "probability_a", "probability_b", "mean", "difference"],
    rows: Array.from(shown(payload, pair, choice), (at) => [
      payload.tokens[at]!,
      a[at]!,
      b[at]!,
      probability(payload, pair.a, at),
      probability(payload, pair.b, at),
      mean[at]!,
      difference[at]!,
    ]),
  };
}

export const compare: View<Comparison> = {
  name: "compare",
  title: "Fill in the blank",
  about:
    "Which words does the model put into the blank, _, and how does that change with the sentence? Two sentences are compared; " +
    "[he|she] stands for both words, two such slots make a grid, [1860..2018] is a range of years; a single sentence shows every word's completions.",
  model: true,
  suits: ["reader"],
  fields: [
    { name: "a", label: "Sentence one", start: "In Texas, they like to buy _." },
    { name: "b", label: "Sentence two", start: "In New York, they like to buy _.", optional: true },
    { name: "other", label: "Second model (optional)", start: "", optional: true, model: true },
  ],
  verb: "Update",
  Show,
  drawing: (payload, here) =>
    payload.kind === "sentence" ? drawSentence(payload, here) : payload.kind === "sweep" ? sweepDrawing(payload, here) : chartsDrawing(payload, here),
  table: (payload, here) =>
    payload.kind === "sentence" ? tableOfSentence(payload, here) : payload.kind === "sweep" ? tableOfSweep(payload) : chartsTable(payload, here),
};
