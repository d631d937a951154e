// Attention: where every head of a model looks, as lines between tokens, as thumbnails of all heads, or number by number.
import { useEffect, useMemo } from "preact/hooks";
import { later } from "./attention/idle_queue";
import { setParameters, currentRoute } from "../route";
import type { View } from "../view";
import { choiceOf, type Choice } from "./attention/choice";
import { Controls } from "./attention/controls";
import { Grid } from "./attention/grid";
import { Picture } from "./attention/image";
import { Lines } from "./attention/lines";
import { Neuron } from "./attention/neuron";
import type { AttentionPayload } from "./attention/payload";
import { drawing, table } from "./attention/export";

const QUIET = 200; // milliseconds without a choice after which the next ones are prepared

function Show({ payload }: { payload: AttentionPayload }) {
  const here = currentRoute.use();
  const choice = useMemo(() => choiceOf(payload, here), [payload, here]);
  const { model } = payload;
  const { mode } = choice;
  useEffect(() => ahead(choice), [choice]);
  return (
    <section class="attention" aria-label="Attention" onKeyDown={(event) => arrows(event, choice)}>
      <p class="muted">
        {model.name} ({model.family}): {choice.maps.layers} layer{choice.maps.layers === 1 ? "" : "s"} × {choice.maps.heads} head
        {choice.maps.heads === 1 ? "" : "s"}, {choice.maps.raw.rows.length} × {choice.maps.raw.columns.length} tokens
      </p>
      {payload.notes?.map((note) => (
        <p key={note} class="muted">
          {note}
        </p>
      ))}
      <Controls payload={payload} choice={choice} />
      {mode === "lines" && <Lines choice={choice} />}
      {mode === "grid" && <Grid choice={choice} />}
      {mode === "neuron" && <Neuron choice={choice} />}
      {mode === "image" && payload.image && <Picture choice={choice} source={payload.image} grid={gridOf(payload)} />}
    </section>
  );
}

/** The maps that are likely to be asked for next, made while nothing else is to do: those beside the one that is shown. */
function ahead(choice: Choice): () => void {
  const { maps, source, layer, heads } = choice;
  if (source !== "heads") return () => undefined;
  const head = heads[0]!;
  const beside = [[layer, head + 1], [layer, head - 1], [layer + 1, head], [layer - 1, head], [layer, head + 2], [layer, head - 2]] as const;
  const likely = beside.filter(([l, h]) => l >= 0 && h >= 0 && l < maps.layers && h < maps.heads);
  let back: (() => void)[] = [];
  // Not before this one is on the screen, and not between two presses of a key.
  const timer = setTimeout(() => (back = likely.map(([l, h]) => later(() => void maps.shown(l, h, choice)))), QUIET);
  return () => {
    clearTimeout(timer);
    back.forEach((one) => one());
  };
}

/** Left and right change the head, up and down the layer, wherever the focus is in the view but in a field. */
function arrows(event: KeyboardEvent, { layer, heads, maps, source }: Choice): void {
  const target = event.target as HTMLElement;
  if (target.matches("select, input, textarea") || event.ctrlKey || event.altKey || event.metaKey) return;
  const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
  if (!down && !across) return;
  event.preventDefault();
  const inside = (value: number, count: number) => String(Math.max(0, Math.min(count - 1, value)));
  if (down) setParameters({ layer: inside(layer + down, maps.layers) });
  else if (source === "heads") setParameters({ heads: inside(heads[0]! + across!, maps.heads) });
}

function gridOf(payload: AttentionPayload): readonly [number, number] {
  if (payload.grid) return payload.grid;
  const side = Math.floor(Math.sqrt(payload.maps[0]!.columns.length));
  return [side, side];
}

export const attention: View<AttentionPayload> = {
  name: "attention",
  title: "Attention",
  about: "Type a sentence and see where every head of the model looks.",
  model: true,
  fields: [
    { name: "text", label: "Text", start: "The animal did not cross the street because it was too tired." },
    { name: "text_b", label: "Second text (optional)", start: "", optional: true },
    { name: "image", label: "Picture (PNG or JPEG, at most 8 MB)", start: "", picture: true },
  ],
  Show,
  drawing: (payload, here) => drawing(choiceOf(payload, here)),
  table: (payload, here) => table(choiceOf(payload, here)),
};
