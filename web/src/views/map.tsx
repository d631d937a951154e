// A map of sentences: their vectors on a plane (principal components, t-SNE or UMAP), and the nearest neighbors of each
// by cosine.
import { useMemo } from "preact/hooks";
import { DataTable, Notes } from "../components";
import { count, fixedPercent } from "../format";
import type { Painter } from "../painter";
import { currentRoute, integerParameter, type Route, setParameters } from "../route";
import { colors, series } from "../theme";
import { thumbnails } from "../thumbnails";
import type { Sentence } from "../types";
import type { View, ViewOf } from "../view";
import "./embeddings/embeddings.css";
import { ANIMALS_AND_TOOLS, QUESTIONS, TOPICS, TRAIN } from "./embeddings/examples";
import { OpenFile } from "./embeddings/open_file";
import {
  drawScatter,
  layoutOf,
  marker,
  type PlotStyle,
  type Point,
  ScatterPlot,
  type Viewport,
  viewport,
  ZoomButtons,
} from "./embeddings/scatter_plot";

type MapPayload = ViewOf<"map">;

const MAX_LABELS = 24; // in the legend

function Show({ payload }: { payload: MapPayload }) {
  const { parameters } = currentRoute.use();
  const { sentences, explained } = payload;
  const selected = integerParameter(parameters, "at", sentences.length);
  const find = parameters["find"] ?? "";
  const only = parameters["label"] ?? null;
  const view = viewOf(parameters);
  const labels = useMemo(() => labelsOf(sentences), [sentences]);
  const points = useMemo(() => sentences.map((one) => one.point as Point), [sentences]);
  const style = useMemo(
    () => plotStyle(payload, labels, selected, find, only),
    [payload, labels, selected, find, only],
  );
  const setView = ({ zoom, x, y }: Viewport) =>
    setParameters(
      zoom === 1 ? { zoom: "", center: "" } : { zoom: zoom.toFixed(2), center: `${x.toFixed(3)},${y.toFixed(3)}` },
    );
  const select = (number: number) => setParameters({ at: String(number) });
  return (
    <section aria-label="Sentence map">
      <OpenFile view="map" field="texts" />
      <Notes notes={payload.notes} />
      <p class="muted">
        {count(sentences.length)} sentences with vectors of {payload.width} numbers ({payload.model}, layer{" "}
        {payload.layer}, pooling {payload.pooling}).{" "}
        {explained.length
          ? `The plane keeps ${fixedPercent(
              explained.reduce((a, b) => a + b, 0),
              1,
            )} of their variance; `
          : `The plane is that of ${PROJECTIONS[payload.projection]}: only what is close together means something; `}
        neighbors are computed from the full vectors.
      </p>
      <div class="choices">
        <ZoomButtons view={view} onView={setView} />
        <label>
          Sentence
          <input
            type="number"
            min={1}
            max={sentences.length}
            value={selected + 1}
            onInput={(event) => select(Number(event.currentTarget.value) - 1)}
          />
        </label>
        <label>
          Find
          <input type="search" value={find} onInput={(event) => setParameters({ find: event.currentTarget.value })} />
        </label>
        {find && (
          <span role="status" class="muted">
            {style.highlighted?.size ?? 0} found
          </span>
        )}
      </div>
      {labels.length > 0 && <Legend labels={labels} only={only} />}
      <div class="sides">
        <ScatterPlot
          points={points}
          style={style}
          height={460}
          label={`${sentences.length} sentences on a plane: ${PROJECTIONS[payload.projection]} of their vectors`}
          view={view}
          onView={setView}
          describe={(number) => labeledText(sentences[number]!)}
          neighbors={(number) => sentences[number]!.neighbors.map((one) => one.index)}
          onSelect={select}
        />
        <div>
          <h3>Sentence {selected + 1}</h3>
          <p class="selected" dir="auto">
            {labeledText(sentences[selected]!)}
          </p>
          <DataTable
            class="neighbors"
            headers={["Cosine", "Nearest sentences"]}
            rows={sentences[selected]!.neighbors.map((one) => [
              one.cosine.toFixed(3),
              <button type="button" dir="auto" onClick={() => select(one.index)}>
                {labeledText(sentences[one.index]!)}
              </button>,
            ])}
          />
        </div>
      </div>
    </section>
  );
}

const PROJECTIONS: Readonly<Record<MapPayload["projection"], string>> = {
  pca: "principal components",
  tsne: "t-SNE",
  umap: "UMAP",
};

function viewOf({ zoom, center }: Route["parameters"]): Viewport {
  const [x, y] = (center ?? "").split(",").map(Number);
  return viewport(Number(zoom ?? 1), x ?? 0.5, y ?? 0.5);
}

/** The labels with their colors; pressing one fades the others. */
function Legend({ labels, only }: { labels: readonly string[]; only: string | null }) {
  colors.use();
  return (
    <ul class="legend labels" aria-label="Labels">
      {labels.slice(0, MAX_LABELS).map((label, group) => (
        <li key={label}>
          <button
            type="button"
            aria-pressed={label === only}
            onClick={() => setParameters({ label: label === only ? "" : label })}
          >
            <span aria-hidden="true" style={{ color: series(group) }}>
              {marker(group)}
            </span>{" "}
            {label || "no label"}
          </button>
        </li>
      ))}
      {labels.length > MAX_LABELS && <li class="muted">and {labels.length - MAX_LABELS} more</li>}
    </ul>
  );
}

const labeledText = ({ text, label }: Sentence) => (label ? `${text} [${label}]` : text);
const isLabeled = (sentences: readonly Sentence[]) => sentences.some((one) => one.label !== null);

/** The distinct labels in order of appearance; empty if no sentence has one. */
function labelsOf(sentences: readonly Sentence[]): readonly string[] {
  return isLabeled(sentences) ? [...new Set(sentences.map((one) => one.label ?? ""))] : [];
}

function plotStyle(
  { sentences, explained }: MapPayload,
  labels: readonly string[],
  selected: number,
  find: string,
  only: string | null,
): PlotStyle {
  const groups = new Map(labels.map((label, group) => [label, group]));
  const query = find.trim().toLowerCase();
  const matching = () =>
    sentences.flatMap((one, number) =>
      labeledText(one).toLowerCase().includes(query) && (only === null || one.label === only) ? [number] : [],
    );
  return {
    explained,
    size: sentences.length > 500 ? 9 : sentences.length > 100 ? 12 : 15,
    group: (number) => groups.get(sentences[number]!.label ?? "") ?? 0,
    selected,
    neighbors: sentences[selected]!.neighbors.map((one) => one.index),
    ...((query || only !== null) && { highlighted: new Set(matching()) }),
  };
}

function drawing(payload: MapPayload, { parameters }: Route) {
  const { sentences } = payload;
  const labels = labelsOf(sentences);
  const style = plotStyle(
    payload,
    labels,
    integerParameter(parameters, "at", sentences.length),
    parameters["find"] ?? "",
    parameters["label"] ?? null,
  );
  const [width, height] = [900, 640];
  const legend = labels.slice(0, MAX_LABELS);
  const layout = layoutOf(
    sentences.map((one) => one.point as Point),
    width,
    height,
    undefined,
    viewOf(parameters),
  );
  return {
    width,
    height: height + 20 * legend.length + 8,
    draw(painter: Painter) {
      drawScatter(painter, layout, style);
      legend.forEach((label, group) => {
        painter.text(marker(group), 16, height + 16 + 20 * group, { size: 15, align: "center", color: series(group) });
        painter.text(label || "no label", 30, height + 16 + 20 * group);
      });
    },
  };
}

function table({ sentences }: MapPayload) {
  const labeled = isLabeled(sentences);
  const neighbors = sentences[0]!.neighbors.flatMap((_, number) => [`neighbor_${number + 1}`, `cosine_${number + 1}`]);
  return {
    headers: ["text", ...(labeled ? ["label"] : []), "x", "y", ...neighbors],
    rows: sentences.map((one) => [
      one.text,
      ...(labeled ? [one.label ?? ""] : []),
      ...one.point,
      ...one.neighbors.flatMap(({ index, cosine }) => [index + 1, cosine]),
    ]),
  };
}

export const map: View<MapPayload> = {
  name: "map",
  title: "Sentence map",
  about: "Many sentences on one map: sentences that are close together have similar vectors.",
  group: "vectors",
  examples: [
    {
      label: "Food, music, sport",
      values: { texts: TOPICS, projection: "pca", layers: "-1", pooling: "mean", neighbors: "5" },
    },
    {
      label: "Animals and tools",
      values: { texts: ANIMALS_AND_TOOLS, projection: "pca", layers: "-1", pooling: "mean", neighbors: "5" },
    },
    {
      label: "Questions and statements",
      values: { texts: QUESTIONS, projection: "pca", layers: "-1", pooling: "mean", neighbors: "5" },
    },
    {
      label: "“train” in two senses",
      values: { texts: TRAIN, projection: "pca", layers: "-1", pooling: "mean", neighbors: "3" },
    },
    {
      label: "The first map by t-SNE",
      values: { texts: TOPICS, projection: "tsne", layers: "-1", pooling: "mean", neighbors: "5" },
    },
    {
      label: "The same from layer 2",
      values: { texts: TOPICS, projection: "pca", layers: "2", pooling: "mean", neighbors: "5" },
    },
  ],
  Thumbnail: thumbnails.map,
  finding: ({ sentences, model }) => {
    if (!isLabeled(sentences)) return `${count(sentences.length)} sentences on one plane by ${model}`;
    const same = sentences.filter(
      (one) => one.neighbors[0] && sentences[one.neighbors[0].index]!.label === one.label,
    ).length;
    return (
      `${count(same)} of ${count(sentences.length)} sentences have a nearest neighbor with the same label ` +
      `(${model})`
    );
  },
  verb: "map",
  excludes: ["translation", "image"],
  prefers: ["sentence-embedding"],
  fields: [
    { name: "texts", label: "Sentences, one per line; a label may follow after | or a tab", lines: 5, start: TOPICS },
    { name: "projection", label: "Projection (pca, tsne or umap)", start: "pca", fold: true },
    { name: "layers", label: "Layers, such as -1 or mean(-4:)", start: "-1", fold: true },
    { name: "pooling", label: "Pooling (mean, cls or max)", start: "mean", fold: true },
    { name: "neighbors", label: "Neighbors", start: "5", fold: true },
  ],
  Show,
  drawing,
  table,
};
