// One sentence; clicking a word masks it and shows the most probable completions.
import { fixedPercent } from "../../format";
import { currentRoute, integerParameter, type Route, setParameters } from "../../route";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { Reset, Warning } from "./charts";
import type { Sentence } from "./selection";

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
        {completions.map(([token, probability], number) => (
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
      completions.forEach(([token, probability], number) => {
        const [x, y] = [16 + 235 * Math.floor(number / rows), 60 + 20 * (number % rows)];
        painter.text(fixedPercent(probability, 3), x + 62, y, { align: "right", mono: true, size: 12, color: colors.get().muted });
        painter.text(token, x + 74, y, { mono: true, size: 12 });
      });
    },
  };
}

export function sentenceTable(payload: Sentence, route: Route): Table {
  const { word, completions } = payload.words[maskedWord(payload, route)]!;
  return { headers: ["hidden", "token", "probability"], rows: completions.map(([token, probability]) => [word, token, probability]) };
}
