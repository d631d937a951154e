// The lecture's walk from sentences to a classifier, one stage after the other.
import { setParameters, currentRoute, type Route } from "../route";
import type { Painter } from "../painter";
import { colors } from "../theme";
import type { View } from "../view";
import "./embeddings/embeddings.css";
import { FILMS } from "./embeddings/examples";
import { OpenFile } from "./embeddings/open_file";
import { Stage } from "./embeddings/stages";
import { BOX, drawTensor } from "./embeddings/tensor";
import { STAGES, type Walk } from "./embeddings/walk";

const LAST = STAGES.length - 1;

function Show({ payload }: { payload: Walk }) {
  const step = stepOf(currentRoute.use());
  const go = (to: number) => setParameters({ step: String(Math.max(1, Math.min(LAST + 1, to + 1))) });
  return (
    <section class="walk" aria-label="Feature walk" onKeyDown={(event) => arrows(event, step, go)}>
      <OpenFile view="features" />
      {payload.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      <ol class="stages">
        {STAGES.map((name, number) => (
          <li key={name}>
            <button type="button" aria-pressed={step === number} onClick={() => go(number)}>
              {number + 1} {name}
            </button>
          </li>
        ))}
        <li>
          <button type="button" aria-pressed={step === null} onClick={() => setParameters({ step: "all" })}>
            All
          </button>
        </li>
      </ol>
      {step === null ? STAGES.map((_, number) => <Stage key={number} walk={payload} number={number} />) : <Stage walk={payload} number={step} />}
      {step !== null && (
        <p class="choices">
          <button type="button" disabled={step === 0} onClick={() => go(step - 1)}>
            ← Back
          </button>
          <button type="button" disabled={step === LAST} onClick={() => go(step + 1)}>
            Next →
          </button>
        </p>
      )}
    </section>
  );
}

/** The stage shown, from 0; null for all. */
function stepOf({ parameters }: Route): number | null {
  if (parameters["step"] === "all") return null;
  const step = Number.parseInt(parameters["step"] ?? "1", 10) - 1;
  return step >= 0 && step <= LAST ? step : 0;
}

function arrows(event: KeyboardEvent, step: number | null, go: (to: number) => void): void {
  const change = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!change || step === null || (event.target as HTMLElement).matches("input, .wide")) return;
  event.preventDefault();
  go(step + change);
}

function drawing(walk: Walk) {
  return {
    width: 740,
    height: BOX.height + 10,
    draw(painter: Painter) {
      const { accent, other, muted } = colors.get();
      drawTensor(painter, walk.hidden, walk.pooling);
      const bars = [
        ["always the commonest label", walk.masked.guess, muted],
        ["with mask", walk.masked.accuracy, accent],
        ["without mask, as on the slides", walk.unmasked.accuracy, other],
      ] as const;
      painter.text(`Accuracy on ${walk.masked.test} texts, ${walk.model.name}`, 380, 40, { bold: true });
      bars.forEach(([name, value, color], number) => {
        painter.text(name, 380, 74 + 46 * number, { size: 12 });
        painter.rect(380, 84 + 46 * number, 2.6 * value, 14, color);
        painter.text(`${value.toFixed(2)}%`, 388 + 2.6 * value, 91 + 46 * number, { size: 12, bold: true });
      });
    },
  };
}

export const features: View<Walk> = {
  name: "features",
  title: "Feature walk",
  about: "From sentences to a classifier in nine steps, with a model that is not trained further.",
  model: true,
  suits: ["reader", "writer", "tuned"],
  fields: [
    { name: "texts", label: "Sentences, one a line, with a label behind | or a tab; at least five of each label", lines: 5, start: FILMS },
    { name: "pooling", label: "Vector (cls or mean)", start: "cls" },
    { name: "layer", label: "Layer, such as -1 or concat(-4:)", start: "-1" },
  ],
  Show,
  drawing,
  // What the command line reads again: the very texts of the walk.
  table: ({ examples }) => ({ headers: ["text", "label"], rows: examples }),
};
