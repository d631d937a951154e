// Attention: the weights of every head, as lines between tokens, as thumbnails of all heads, or dimension by dimension.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ButtonGroup, LayerSelect, Notes, Select } from "../components";
import { fixedPercent, plural } from "../format";
import { currentRoute, onArrowKeys, type Route, setParameters } from "../route";
import { series, strip } from "../theme";
import { thumbnails } from "../thumbnails";
import type { View } from "../view";
import { drawing, table } from "./attention/export";
import { Grid, runWhenIdle } from "./attention/grid";
import { AboutSource, RangeLegend, Threshold } from "./attention/legend";
import { focusWeights, ImageMode, Lines } from "./attention/lines";
import {
  type AttentionPayload,
  availableModes,
  type Level,
  type Mode,
  type Segments,
  type Selection,
  type Source,
  selectionOf,
} from "./attention/maps";
import { Neuron } from "./attention/neuron";
import "./attention/attention.css";

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
        {model.name} ({model.family}): {plural(maps.layers, "layer")} × {plural(maps.heads, "head")},{" "}
        {maps.raw.rows.length} × {maps.raw.columns.length} tokens
      </p>
      <Notes notes={payload.notes} class="muted" />
      <Controls payload={payload} selection={selection} />
      <AboutSource selection={selection} />
      {mode === "lines" && <Lines selection={selection} />}
      {mode === "grid" && <Grid selection={selection} />}
      {mode === "neuron" && <Neuron selection={selection} />}
      {(mode === "lines" || mode === "grid") && <RangeLegend selection={selection} />}
      {selection.image && <ImageMode selection={selection} image={selection.image} />}
    </section>
  );
}

/** Computes the neighboring maps while the page is idle, since they are likely to be selected next. */
function prefetch(selection: Selection): () => void {
  const { maps, source, layer, heads } = selection;
  if (source !== "heads") return () => undefined;
  const head = heads[0]!;
  const neighbors = [
    [layer, head + 1],
    [layer, head - 1],
    [layer + 1, head],
    [layer - 1, head],
    [layer, head + 2],
    [layer, head - 2],
  ] as const;
  const likely = neighbors.filter(([l, h]) => l >= 1 && h >= 0 && l <= maps.layers && h < maps.heads);
  let cancel: (() => void)[] = [];
  const timer = setTimeout(
    () => (cancel = likely.map(([l, h]) => runWhenIdle(() => void maps.weights(l, h, selection)))),
    PREFETCH_DELAY,
  );
  return () => {
    clearTimeout(timer);
    cancel.forEach((one) => one());
  };
}

/** Left and right change the head, up and down the layer. */
function arrowKeys({ layer, heads, maps, source }: Selection) {
  const clamp = (value: number, first: number, count: number) =>
    String(Math.max(first, Math.min(first + count - 1, value)));
  return onArrowKeys(
    { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] } as const,
    ([down, across]) => {
      if (down) setParameters({ layer: clamp(layer + down, 1, maps.layers) });
      else if (source === "heads") setParameters({ heads: clamp(heads[0]! + across, 0, maps.heads) });
    },
  );
}

const WEAK = 0.1; // of a weight: nothing to point out
const ANIMAL = "The animal did not cross the street because it was too tired.";

/** What the locked token attends to most; without one, the strongest link between two words of the first head shown. */
function finding(payload: AttentionPayload, route: Route): string {
  const selection = selectionOf(payload, route);
  const { rows, columns, layer, heads, source, locked, image } = selection;
  const isPatch = (label = "") => /\d/.test(label);
  const name = (label = "") => (!image ? `“${label.trim()}”` : isPatch(label) ? `patch ${label}` : label);
  const place = (head: number) => {
    if (source === "flow") return "by flow";
    if (source === "rollout") return `by rollout up to layer ${layer}`;
    if (source === "heads") return `in layer ${layer}, head ${heads[head]}`;
    return `in layer ${layer}, ${source === "mean" ? "on average over the heads" : "in one of the heads"}`;
  };
  const where = (head: number) => `${place(head)} of ${payload.model.name}`;
  // of an image, what [CLS] attends to is shown first
  const focus = locked ?? (image ? { side: "row" as const, index: 0 } : null);
  if (focus) {
    const other = (focus.side === "row" ? columns : rows).labels;
    const own = name((focus.side === "row" ? rows : columns).labels[focus.index]);
    const [weight, index, head] = strongest(focusWeights(selection, focus), (at) => !image || isPatch(other[at]));
    return (
      `${own} ${focus.side === "row" ? "attends most to" : "gets most attention from"} ${name(other[index])} ` +
      `(${fixedPercent(weight, 0)}) ${where(head)}`
    );
  }
  const across = columns.labels.length;
  const isWord = (label: string | undefined) => !/^\s*([[<].*[\]>]|\W*)$/s.test(label ?? "");
  const words = { rows: rows.labels.map(isWord), columns: columns.labels.map(isWord) };
  const [weight, cell, head] = strongest(
    [selection.maps.weights(layer, heads[0]!, selection)],
    (at) =>
      words.rows[Math.floor(at / across)]! && words.columns[at % across]! && Math.floor(at / across) !== at % across,
  );
  if (weight < WEAK)
    return (
      `No word gives another word more than ${fixedPercent(Math.max(weight, 0.01), 0)} of its attention ` +
      `${where(head)}`
    );
  return (
    `The strongest link ${where(head)}: ${name(rows.labels[Math.floor(cell / across)])} attends to ` +
    `${name(columns.labels[cell % across])} (${fixedPercent(weight, 0)})`
  );
}

/** The largest of some weights, its index, and the index of its list. */
function strongest(
  lists: readonly Float32Array[],
  counts: (index: number) => boolean,
): readonly [number, number, number] {
  let best: readonly [number, number, number] = [0, 0, 0];
  lists.forEach((list, number) => {
    list.forEach((weight, index) => {
      if (weight > best[0] && counts(index)) best = [weight, index, number];
    });
  });
  return best;
}

export const attention: View<AttentionPayload> = {
  name: "attention",
  title: "Attention",
  about: "Type a sentence and see what every attention head of the model attends to.",
  group: "inside",
  examples: [
    {
      label: "What does “it” mean?",
      values: { text: ANIMAL },
      select: { layer: "5", heads: "3", token: "it" },
      model: "regard-gpt",
    },
    {
      label: "… and when it was too wide",
      values: { text: ANIMAL.replace("tired", "wide") },
      select: { layer: "5", heads: "3", token: "it" },
      model: "regard-gpt",
    },
    {
      label: "A pair of sentences",
      values: { text: "Did the unhappy cat sleep?", text_b: "Yes, it was overwhelmingly tired." },
      select: { layer: "3", heads: "all" },
      model: "regard-bert",
    },
    {
      label: "Every head at a glance",
      values: { text: ANIMAL },
      select: { mode: "grid", layer: "7", heads: "3" },
      model: "regard-bert",
    },
    {
      label: "Query × key, number by number",
      values: { text: ANIMAL },
      select: { mode: "neuron", layer: "5", heads: "3", token: "it" },
      model: "regard-gpt",
    },
    { label: "A handwritten digit", values: { image: "digit-7" }, model: "regard-digits", needs: "image" },
  ],
  travels: { text: "text", second: "text_b", layer: true, token: true },
  Thumbnail: thumbnails.attention,
  finding,
  token: (payload, route) => {
    const { locked, rows, columns } = selectionOf(payload, route);
    return locked && ((locked.side === "row" ? rows : columns).labels[locked.index]?.trim() ?? null);
  },
  verb: "look",
  fields: [
    { name: "text", label: "Text", start: ANIMAL },
    { name: "text_b", label: "Second text (optional)", start: "", optional: true },
    { name: "image", label: "Image (PNG or JPEG, at most 8 MB)", start: "digit-7", image: true },
  ],
  toRequest: ({ model, text, text_b, image }, takesImages) =>
    takesImages ? { model, image } : { model, text, text_b },
  Show,
  drawing: (payload, route) => drawing(selectionOf(payload, route)),
  table: (payload, route) => table(selectionOf(payload, route)),
};

const MODES: Record<Mode, string> = { image: "Image", lines: "Heads", grid: "Model", neuron: "Neurons" };
const SOURCES: Record<Source, string> = {
  heads: "attention heads",
  mean: "mean",
  max: "maximum",
  rollout: "rollout",
  flow: "flow",
};
const LAYOUTS = { down: "down", across: "across" };
const SEGMENTS: Record<Segments, string> = { all: "all", aa: "A → A", ab: "A → B", ba: "B → A", bb: "B → B" };
const LEVELS: Record<Level, string> = { piece: "subwords", word: "words" };

export function Controls({ payload, selection }: { payload: AttentionPayload; selection: Selection }) {
  const { maps, mode, source, level, pair, layer } = selection;
  const modes = Object.fromEntries(availableModes(payload, maps).map((one) => [one, MODES[one]]));
  const sources = Object.fromEntries(maps.sources.map((one) => [one, SOURCES[one]]));
  const kinds = Object.fromEntries(
    payload.maps.map((one, index) => [index, one.kind === "cross" ? "cross-attention" : one.kind]),
  );
  // A default is removed from the route.
  const set = (name: string, fallback: string) => (value: string) =>
    setParameters({ [name]: value === fallback ? "" : value });
  return (
    <div class="choices">
      <ButtonGroup title="View" options={modes} value={mode} onSelect={(value) => setParameters({ mode: value })} />
      {payload.maps.length > 1 && (
        <Select
          label="Maps"
          options={kinds}
          value={selection.map}
          onSelect={(value) => setParameters({ map: value, lock: "" })}
        />
      )}
      {mode !== "neuron" && maps.sources.length > 1 && (
        <ButtonGroup title="Show" options={sources} value={source} onSelect={set("source", "heads")} />
      )}
      {mode !== "neuron" && maps.hasWords && (
        <ButtonGroup title="Tokens" options={LEVELS} value={level} onSelect={set("level", "piece")} />
      )}
      {maps.paired && <ButtonGroup title="From → to" options={SEGMENTS} value={pair} onSelect={set("pair", "all")} />}
      {source !== "flow" && (
        <LayerSelect layer={layer} layers={maps.layers} onSelect={(value) => setParameters({ layer: value })} />
      )}
      {source === "heads" && <HeadButtons selection={selection} />}
      {maps.hasSpecial && mode !== "image" && (
        <label>
          <input
            type="checkbox"
            checked={selection.hidesSpecial}
            onChange={(event) => setParameters({ special: event.currentTarget.checked ? "hide" : "" })}
          />
          hide special tokens
        </label>
      )}
      {(mode === "lines" || mode === "grid") && <Threshold selection={selection} />}
      {mode === "lines" && (
        <ButtonGroup
          title="Tokens run"
          options={LAYOUTS}
          value={selection.across ? "across" : "down"}
          onSelect={set("layout", "down")}
        />
      )}
    </div>
  );
}

function HeadButtons({ selection }: { selection: Selection }) {
  const { heads, maps, mode } = selection;
  const [several, setSeveral] = useState(heads.length > 1);
  if (maps.heads < 2) return null;
  const single = mode === "neuron" || mode === "grid";
  const press = (head: number, event: MouseEvent) => {
    if (single || (!several && !event.ctrlKey && !event.metaKey && !event.shiftKey))
      return setParameters({ heads: String(head) });
    const next = heads.includes(head) ? heads.filter((one) => one !== head) : [...heads, head];
    setParameters({ heads: next.length === maps.heads ? "all" : next.join(",") });
  };
  const shown = single ? heads.slice(0, 1) : heads;
  const all = heads.length === maps.heads;
  return (
    <fieldset>
      <legend>{single ? "Head" : "Heads"}</legend>
      <span class={shown.length > 1 ? "heads several" : "heads"}>
        {Array.from({ length: maps.heads }, (_, head) => {
          const on = shown.includes(head);
          const style = on && shown.length > 1 ? { backgroundImage: strip(head), borderColor: series(head) } : {};
          return (
            <button
              key={head}
              type="button"
              aria-pressed={on}
              aria-label={`Head ${head}`}
              style={style}
              onClick={(event) => press(head, event)}
            >
              {head}
            </button>
          );
        })}
      </span>
      {!single && (
        <>
          <button type="button" aria-pressed={all} onClick={() => setParameters({ heads: all ? "0" : "all" })}>
            all
          </button>
          <label>
            <input type="checkbox" checked={several} onChange={(event) => setSeveral(event.currentTarget.checked)} />
            several
          </label>
        </>
      )}
    </fieldset>
  );
}
