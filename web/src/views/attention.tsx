// Attention: the weights of every head, as lines between tokens, as thumbnails of all heads, or dimension by dimension.
import { useEffect, useMemo } from "preact/hooks";
import { Notes } from "../components";
import { plural } from "../format";
import { currentRoute, onArrowKeys, setParameters } from "../route";
import type { View } from "../view";
import { Controls } from "./attention/controls";
import { drawing, table } from "./attention/export";
import { Grid, runWhenIdle } from "./attention/grid";
import { ImageMode } from "./attention/image";
import { Lines } from "./attention/lines";
import type { AttentionPayload } from "./attention/maps";
import { Neuron } from "./attention/neuron";
import { type Selection, selectionOf } from "./attention/selection";

const PREFETCH_DELAY = 200; // milliseconds after the last change

function Show({ payload }: { payload: AttentionPayload }) {
  const route = currentRoute.use();
  const selection = useMemo(() => selectionOf(payload, route), [payload, route]);
  const { model } = payload;
  const { maps, mode } = selection;
  useEffect(() => prefetch(selection), [selection]);
  return (
    <section class="attention" aria-label="Attention" onKeyDown={arrowKeys(selection)}>
      <p class="muted">
        {model.name} ({model.family}): {plural(maps.layers, "layer")} × {plural(maps.heads, "head")}, {maps.raw.rows.length} × {maps.raw.columns.length} tokens
      </p>
      <Notes notes={payload.notes} class="muted" />
      <Controls payload={payload} selection={selection} />
      {mode === "lines" && <Lines selection={selection} />}
      {mode === "grid" && <Grid selection={selection} />}
      {mode === "neuron" && <Neuron selection={selection} />}
      {mode === "image" && payload.image && <ImageMode selection={selection} source={payload.image} grid={patchGrid(payload)} />}
    </section>
  );
}

/** Computes the neighboring maps while the page is idle, since they are likely to be selected next. */
function prefetch(selection: Selection): () => void {
  const { maps, source, layer, heads } = selection;
  if (source !== "heads") return () => undefined;
  const head = heads[0]!;
  const neighbors = [[layer, head + 1], [layer, head - 1], [layer + 1, head], [layer - 1, head], [layer, head + 2], [layer, head - 2]] as const;
  const likely = neighbors.filter(([l, h]) => l >= 0 && h >= 0 && l < maps.layers && h < maps.heads);
  let cancel: (() => void)[] = [];
  const timer = setTimeout(() => (cancel = likely.map(([l, h]) => runWhenIdle(() => void maps.weights(l, h, selection)))), PREFETCH_DELAY);
  return () => {
    clearTimeout(timer);
    cancel.forEach((one) => one());
  };
}

/** Left and right change the head, up and down the layer. */
function arrowKeys({ layer, heads, maps, source }: Selection) {
  const clamp = (value: number, count: number) => String(Math.max(0, Math.min(count - 1, value)));
  return onArrowKeys({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] } as const, ([down, across]) => {
    if (down) setParameters({ layer: clamp(layer + down, maps.layers) });
    else if (source === "heads") setParameters({ heads: clamp(heads[0]! + across, maps.heads) });
  });
}

function patchGrid(payload: AttentionPayload): readonly [number, number] {
  const side = Math.floor(Math.sqrt(payload.maps[0]!.columns.length));
  return payload.grid ?? [side, side];
}

export const attention: View<AttentionPayload> = {
  name: "attention",
  title: "Attention",
  about: "Type a sentence and see what every attention head of the model attends to.",
  model: true,
  fields: [
    { name: "text", label: "Text", start: "The animal did not cross the street because it was too tired." },
    { name: "text_b", label: "Second text (optional)", start: "", optional: true },
    { name: "image", label: "Image (PNG or JPEG, at most 8 MB)", start: "", image: true },
  ],
  Show,
  drawing: (payload, route) => drawing(selectionOf(payload, route)),
  table: (payload, route) => table(selectionOf(payload, route)),
};
