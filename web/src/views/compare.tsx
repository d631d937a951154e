// Fill in the blank: the predictions of a model for the blank of two sentences, of a grid of them, or over a range of years.
import type { View } from "../view";
import { chartsDrawing, chartsTable, ShowGrid, ShowPair } from "./compare/charts";
import "./compare/compare.css";
import type { Comparison } from "./compare/selection";
import { sentenceDrawing, sentenceTable, ShowSentence } from "./compare/sentence";
import { ShowSweep, sweepDrawing, sweepTable } from "./compare/sweep";

function Show({ payload }: { payload: Comparison }) {
  if (payload.kind === "sentence") return <ShowSentence payload={payload} />;
  if (payload.kind === "sweep") return <ShowSweep payload={payload} />;
  return payload.kind === "grid" ? <ShowGrid payload={payload} /> : <ShowPair payload={payload} />;
}

export const compare: View<Comparison> = {
  name: "compare",
  title: "Fill in the blank",
  about:
    "Which words does the model predict for the blank, _, and how does that depend on the sentence? Two sentences are compared; " +
    "[he|she] stands for both words, two such slots make a grid, [1860..2018] is a range of years; a single sentence shows completions of every word.",
  model: true,
  kinds: ["reader"],
  fields: [
    { name: "a", label: "Sentence one", start: "In Texas, they like to buy _." },
    { name: "b", label: "Sentence two", start: "In New York, they like to buy _.", optional: true },
    { name: "other", label: "Second model (optional)", start: "", optional: true, model: true },
  ],
  submitLabel: "Update",
  Show,
  drawing: (payload, route) =>
    payload.kind === "sentence" ? sentenceDrawing(payload, route) : payload.kind === "sweep" ? sweepDrawing(payload, route) : chartsDrawing(payload, route),
  table: (payload, route) =>
    payload.kind === "sentence" ? sentenceTable(payload, route) : payload.kind === "sweep" ? sweepTable(payload) : chartsTable(payload, route),
};
