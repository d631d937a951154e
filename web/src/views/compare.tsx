// Fill in the blank: the predictions of a model for the blank of two sentences, of a grid of them, or over a range of years.
import { fixedPercent } from "../format";
import { currentRoute, integerParameter, type Route, setParameters } from "../route";
import { colors } from "../theme";
import type { Drawing, Table, View } from "../view";
import { chartsDrawing, chartsTable, Reset, ShowGrid, ShowPair, Warning } from "./compare/charts";
import "./compare/compare.css";
import type { Comparison, Sentence } from "./compare/selection";
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
  verb: "compare",
  needs: {
    capability: "masked-lm",
    without: "does not fill in blanks.",
    models: "Models that do",
    advice: "None of the studio's models fills in blanks. Start the studio with a BERT: regard studio --model DIR.",
  },
  fields: [
    { name: "text", label: "Sentence one", start: "In Texas, they like to buy _." },
    { name: "text_b", label: "Sentence two", start: "In New York, they like to buy _.", optional: true },
    { name: "other", label: "Second model (optional)", start: "", optional: true, model: true },
  ],
  submitLabel: "Update",
  Show,
  drawing: (payload, route) =>
    payload.kind === "sentence" ? sentenceDrawing(payload, route) : payload.kind === "sweep" ? sweepDrawing(payload, route) : chartsDrawing(payload, route),
  table: (payload, route) =>
    payload.kind === "sentence" ? sentenceTable(payload, route) : payload.kind === "sweep" ? sweepTable(payload) : chartsTable(payload, route),
};

function maskedWord(payload: Sentence, { parameters }: Route): number {
  const blank = payload.words.findIndex(({ word }) => word === "_");
  return integerParameter(parameters, "word", payload.words.length, blank < 0 ? 0 : blank);
}

export function ShowSentence({ payload }: { payload: Sentence }) {
  const masked = maskedWord(payload, currentRoute.use());
  const { word, completions } = payload.words[masked]!;
  return (
    <section class="compare" aria-label="Completions of every word">
      <p class="muted">Click a word to mask it.</p>
      <p class="sentence">
        {payload.words.map((one, number) => (
          <button key={number} type="button" class={one.spaced ? "spaced" : ""} aria-pressed={number === masked} aria-label={`mask ${one.word}`} onClick={() => setParameters({ word: String(number) })}>
            {number === masked ? "_".repeat(Math.max(1, one.word.length)) : one.word}
          </button>
        ))}
      </p>
      <p class="caption">
        The {completions.length} most probable words of {payload.model} {word === "_" ? "for the blank" : `in place of “${word}”`}:
      </p>
      <ol class="completions">
        {completions.map(({ token, probability }, number) => (
          <li key={number}>
            <span class="muted">{fixedPercent(probability, 3)}</span> {token}
          </li>
        ))}
      </ol>
      <div class="choices">
        <Reset />
      </div>
      <Warning text={payload.warning} />
    </section>
  );
}

export function sentenceDrawing(payload: Sentence, route: Route): Drawing {
  const masked = maskedWord(payload, route);
  const { completions } = payload.words[masked]!;
  const rows = Math.ceil(completions.length / 3);
  const text = payload.words.map((one, number) => (one.spaced && number ? " " : "") + (number === masked ? "_" : one.word)).join("");
  return {
    width: 720,
    height: 60 + rows * 20,
    draw(painter) {
      painter.text(text, 16, 24, { size: 16, bold: true });
      completions.forEach(({ token, probability }, number) => {
        const [x, y] = [16 + 235 * Math.floor(number / rows), 60 + 20 * (number % rows)];
        painter.text(fixedPercent(probability, 3), x + 62, y, { align: "right", mono: true, size: 12, color: colors.get().muted });
        painter.text(token, x + 74, y, { mono: true, size: 12 });
      });
    },
  };
}

export function sentenceTable(payload: Sentence, route: Route): Table {
  const { word, completions } = payload.words[maskedWord(payload, route)]!;
  return { headers: ["hidden", "token", "probability"], rows: completions.map(({ token, probability }) => [word, token, probability]) };
}
