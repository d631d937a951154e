// Features: from sentences to a classifier, one stage after the other.
import { range } from "../format";
import { Notes } from "../components";
import type { Painter } from "../painter";
import { currentRoute, setParameters, type Route } from "../route";
import { colors } from "../theme";
import type { View } from "../view";
import "./embeddings/embeddings.css";
import { FILMS } from "./embeddings/examples";
import { OpenFile } from "./embeddings/open_file";
import { accuracies, BOX, drawTensorBox, Stage, STAGES, type Pipeline } from "./embeddings/stages";

const LAST = STAGES.length - 1;

function Show({ payload }: { payload: Pipeline }) {
  const stage = stageOf(currentRoute.use());
  const select = (next: number) => setParameters({ step: String(Math.max(0, Math.min(LAST, next)) + 1) });
  return (
    <section class="pipeline" aria-label="Features" onKeyDown={(event) => arrowKeys(event, stage, select)}>
      <OpenFile view="features" />
      <Notes notes={payload.notes} />
      <ol class="stages">
        {STAGES.map((name, number) => (
          <li key={name}>
            <button type="button" aria-pressed={stage === number} onClick={() => select(number)}>
              {number + 1} {name}
            </button>
          </li>
        ))}
        <li>
          <button type="button" aria-pressed={stage === null} onClick={() => setParameters({ step: "all" })}>
            All
          </button>
        </li>
      </ol>
      {(stage === null ? range(STAGES.length) : [stage]).map((number) => (
        <Stage key={number} data={payload} number={number} />
      ))}
      {stage !== null && (
        <p class="choices">
          <button type="button" disabled={stage === 0} onClick={() => select(stage - 1)}>
            ← Back
          </button>
          <button type="button" disabled={stage === LAST} onClick={() => select(stage + 1)}>
            Next →
          </button>
        </p>
      )}
    </section>
  );
}

/** The stage shown, from 0; null means all. */
function stageOf({ parameters }: Route): number | null {
  if (parameters["step"] === "all") return null;
  const stage = Number.parseInt(parameters["step"] ?? "1", 10) - 1;
  return stage >= 0 && stage <= LAST ? stage : 0;
}

function arrowKeys(event: KeyboardEvent, stage: number | null, select: (next: number) => void): void {
  const change = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!change || stage === null || (event.target as HTMLElement).matches("input, .wide")) return;
  event.preventDefault();
  select(stage + change);
}

function drawing(data: Pipeline) {
  return {
    width: 740,
    height: BOX.height + 10,
    draw(painter: Painter) {
      const { accent, other, muted } = colors.get();
      drawTensorBox(painter, data.hidden, data.pooling);
      painter.text(`Accuracy on ${data.masked.test} texts, ${data.model.name}`, 380, 40, { bold: true });
      accuracies(data).forEach(([name, value], number) => {
        painter.text(name, 380, 74 + 46 * number, { size: 12 });
        painter.rect(380, 84 + 46 * number, 2.6 * value, 14, [muted, accent, other][number]!);
        painter.text(`${value.toFixed(2)}%`, 388 + 2.6 * value, 91 + 46 * number, { size: 12, bold: true });
      });
    },
  };
}

export const features: View<Pipeline> = {
  name: "features",
  title: "Features",
  about: "From sentences to a classifier in nine steps, with a frozen model.",
  model: true,
  kinds: ["reader", "writer", "tuned"],
  fields: [
    { name: "texts", label: "Sentences, one per line, with a label after | or a tab; at least five of each label", lines: 5, start: FILMS },
    { name: "pooling", label: "Pooling (cls or mean)", start: "cls" },
    { name: "layer", label: "Layer, such as -1 or concat(-4:)", start: "-1" },
  ],
  Show,
  drawing,
  // The format that the command line reads.
  table: ({ examples }) => ({ headers: ["text", "label"], rows: examples }),
};
