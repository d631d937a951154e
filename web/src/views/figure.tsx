// Figure 1: the diagram of the Transformer with the tensors of a sentence in every box, parts that can be removed, and positional encodings.
import { useMemo } from "preact/hooks";
import { Notes } from "../components";
import { currentRoute, setParameters } from "../route";
import type { View } from "../view";
import { BoxPanel, Diagram } from "./figure/box_panel";
import { drawing, Encodings, table } from "./figure/draw";
import "./figure/figure.css";
import { PartRemoval, RemoveButtons } from "./figure/part_removal";
import { type FigurePayload, selectionOf } from "./figure/payload";

function Show({ payload }: { payload: FigurePayload }) {
  const route = currentRoute.use();
  const selection = useMemo(() => selectionOf(payload, route), [payload, route]);
  const { model } = payload;
  const halves = Object.keys(payload.tokens);
  const which = halves.length === 2 ? "both halves" : halves[0] === "encoder" ? "the left half, with its head" : "the right half, without an encoder";
  const mode = (name: "figure" | "positions", label: string) => (
    <button type="button" aria-pressed={selection.mode === name} onClick={() => setParameters({ mode: name === "figure" ? "" : name })}>
      {label}
    </button>
  );
  return (
    <section class="figure-one" aria-label="Figure 1">
      <p class="muted">
        {model.name} ({model.family}): {which}; {model.depth} layers of {model.heads} heads, {model.width} wide, norms {model.norm_first ? "before" : "after"} the sublayers
      </p>
      <Notes notes={payload.notes} class="muted" />
      <div class="choices">
        <span class="group" role="group" aria-label="What is shown">
          {mode("figure", "Figure")}
          {mode("positions", "Positional encodings")}
        </span>
      </div>
      {selection.mode === "positions" ? (
        <Encodings payload={payload} />
      ) : (
        <>
          <RemoveButtons payload={payload} />
          <div class={halves.length === 2 ? "split" : "split half"}>
            <Diagram payload={payload} selection={selection} />
            <BoxPanel payload={payload} selection={selection} />
          </div>
          <PartRemoval payload={payload} />
        </>
      )}
    </section>
  );
}

export const figure: View<FigurePayload> = {
  name: "figure",
  title: "Figure 1",
  about: "The Transformer as drawn in the paper, with the numbers of your sentence in every box. Press a box; remove a part and see the effect.",
  verb: "figure",
  excludes: ["fine-tuned", "image"],
  prefers: ["translation"],
  fields: [
    { name: "text", label: "Text", start: "Ich muss auf den Markt gehen." },
    { name: "target", label: "Translation (optional, for translators)", start: "", optional: true },
    { name: "without", label: "Removed parts", start: "", hidden: true },
  ],
  toRequest: (args) => ({ ...args, without: (args["without"] ?? "").split(",").filter((name) => name.trim()) }),
  Show,
  drawing,
  table,
};
