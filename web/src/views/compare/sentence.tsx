// One sentence whose words can be hidden: the clicked word's likeliest completions.
import type { Route } from "../../route";
import { setParameters, currentRoute, integerParameter } from "../../route";
import type { Drawing, Table } from "../../view";
import { colors } from "../../theme";
import type { Sentence } from "./payload";
import { Reset } from "./show";

const percent = (value: number) => `${(100 * value).toFixed(3)}%`;

function hiddenOf(payload: Sentence, { parameters }: Route): number {
  const blank = payload.words.findIndex(({ word }) => word === "_");
  return integerParameter(parameters, "word", payload.words.length, blank < 0 ? 0 : blank);
}

export function ShowSentence({ payload }: { payload: Sentence }) {
  const hidden = hiddenOf(payload, currentRoute.use());
  const { word, completions } = payload.words[hidden]!;
  return (
    <section class="compare" aria-label="Completions of every word">
      <p class="muted">Click a word to hide it.</p>
      <p class="sentence">
        {payload.words.map((one, number) => (
          <button key={number} type="button" class={one.spaced ? "spaced" : ""} aria-pressed={number === hidden} aria-label={`hide ${one.word}`} onClick={() => setParameters({ word: String(number) })}>
            {number === hidden ? "_".repeat(Math.max(1, one.word.length)) : one.word}
          </button>
        ))}
      </p>
      <p class="caption">
        What {payload.model} would put {word === "_" ? "into the blank" : `in the place of “${word}”`}, the likeliest {completions.length}:
      </p>
      <ol class="completions">
        {completions.map(([token, probability], number) => (
          <li key={number}>
            <span class="muted">{percent(probability)}</span> {token}
          </li>
        ))}
      </ol>
      <div class="choices">
        <Reset />
      </div>
      <p class="muted warning">⚠ {payload.warning}</p>
    </section>
  );
}

export function drawSentence(payload: Sentence, here: Route): Drawing {
  const hidden = hiddenOf(payload, here);
  const { completions } = payload.words[hidden]!;
  const rows = Math.ceil(completions.length / 3);
  const text = payload.words.map((one, number) => (one.spaced && number ? " " : "") + (number === hidden ? "_" : one.word)).join("");
  return {
    width: 720,
    height: 60 + rows * 20,
    draw(painter) {
      const look = colors.get();
      painter.text(text, 16, 24, { size: 16, bold: true });
      completions.forEach(([token, probability], number) => {
        const x = 16 + 235 * Math.floor(number / rows);
        const y = 60 + 20 * (number % rows);
        painter.text(percent(probability), x + 62, y, { align: "right", mono: true, size: 12, color: look.muted });
        painter.text(token, x + 74, y, { mono: true, size: 12 });
      });
    },
  };
}

export function tableOfSentence(payload: Sentence, here: Route): Table {
  const { word, completions } = payload.words[hiddenOf(payload, here)]!;
  return { headers: ["hidden", "token", "probability"], rows: completions.map(([token, probability]) => [word, token, probability]) };
}
