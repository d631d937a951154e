// Figure 1: the Transformer's diagram with the tensors of this sentence in every box, switches, and positional encodings.
import { useMemo } from "preact/hooks";
import { setParameters, currentRoute } from "../route";
import type { View } from "../view";
import { Damage, Switches } from "./figure/damage";
import { Diagram } from "./figure/diagram";
import { Encodings } from "./figure/encodings";
import "./figure/figure.css";
import { Panel } from "./figure/panel";
import { choiceOf, type FigurePayload } from "./figure/payload";
import { drawing, table } from "./figure/export";

function Show({ payload }: { payload: FigurePayload }) {
  const here = currentRoute.use();
  const choice = useMemo(() => choiceOf(payload, here), [payload, here]);
  const { model } = payload;
  const halves = Object.keys(payload.tokens);
  const which = halves.length === 2 ? "both halves" : halves[0] === "encoder" ? "the left half, with its head" : "the right half, without an encoder to look at";
  return (
    <section class="figure-one" aria-label="Figure 1">
      <p class="muted">
        {model.name} ({model.family}): {which}; {model.depth} layers of {model.heads} heads, {model.width} wide, norms {model.norm_first ? "before" : "after"} the sublayers
      </p>
      {payload.notes.map((note) => (
        <p key={note} class="muted">
          {note}
        </p>
      ))}
      <div class="choices">
        <span class="group" role="group" aria-label="What is shown">
          <button type="button" aria-pressed={choice.mode === "figure"} onClick={() => setParameters({ mode: "" })}>
            Figure
          </button>
          <button type="button" aria-pressed={choice.mode === "positions"} onClick={() => setParameters({ mode: "positions" })}>
            Positional encodings
          </button>
        </span>
      </div>
      {choice.mode === "positions" ? (
        <Encodings payload={payload} />
      ) : (
        <>
          <Switches payload={payload} />
          <div class={halves.length === 2 ? "split" : "split half"}>
            <Diagram payload={payload} choice={choice} />
            <Panel payload={payload} choice={choice} />
          </div>
          <Damage payload={payload} />
        </>
      )}
    </section>
  );
}

export const figure: View<FigurePayload> = {
  name: "figure",
  title: "Figure 1",
  about: "The Transformer as the paper draws it, with the numbers of your sentence in every box. Press a box; switch a part off and see what it was good for.",
  model: true,
  suits: ["translator", "reader", "writer"],
  fields: [
    { name: "text", label: "Text", start: "Ich muss auf den Markt gehen." },
    { name: "target", label: "Translation (optional, for translators)", start: "", optional: true },
    { name: "without", label: "Switched off", start: "", hidden: true },
  ],
  Show,
  drawing,
  table,
};
