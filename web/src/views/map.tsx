// A map of sentences: their vectors' first two principal components, and the nearest neighbors of each by cosine.
import { useMemo } from "preact/hooks";
import { setParameters, currentRoute, integerParameter, type Route } from "../route";
import type { Painter } from "../painter";
import { colors, series } from "../theme";
import type { Payload, View } from "../view";
import "./embeddings/embeddings.css";
import { TOPICS } from "./embeddings/examples";
import { OpenFile } from "./embeddings/open_file";
import { Plane } from "./embeddings/plane";
import { drawScatter, layoutOf, sign, type Look, type Point } from "./embeddings/scatter";

interface Sentence {
  readonly text: string;
  readonly label: string | null;
  readonly point: Point;
  readonly neighbors: readonly { readonly index: number; readonly cosine: number }[];
}

interface MapPayload extends Payload {
  readonly model: { readonly name: string };
  readonly layer: number | string;
  readonly pooling: string;
  readonly width: number;
  readonly explained: readonly number[];
  readonly sentences: readonly Sentence[];
  readonly notes: readonly string[];
}

const LEGEND = 24; // labels named; beyond, colours say little anyway

function Show({ payload }: { payload: MapPayload }) {
  const { parameters } = currentRoute.use();
  const { sentences, explained } = payload;
  const at = integerParameter(parameters, "at", sentences.length);
  const find = parameters["find"] ?? "";
  const labels = useMemo(() => labelsOf(sentences), [sentences]);
  const points = useMemo(() => sentences.map((one) => one.point), [sentences]);
  const look = useMemo(() => lookOf(payload, labels, at, find), [payload, labels, at, find]);
  const one = sentences[at]!;
  const kept = explained.reduce((a, b) => a + b, 0);
  const pick = (number: number) => setParameters({ at: String(number) });
  return (
    <section aria-label="Sentence map">
      <OpenFile view="map" />
      {payload.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      <p class="muted">
        {sentences.length.toLocaleString("en")} sentences, {payload.width} numbers each ({payload.model.name}, layer {payload.layer}, pooling{" "}
        {payload.pooling}). The plane keeps {(100 * kept).toFixed(1)}% of their variance; neighbors are those of the full vectors.
      </p>
      <div class="choices">
        <label>
          Sentence
          <input type="number" min={1} max={sentences.length} value={at + 1} onInput={(event) => setParameters({ at: String(Number(event.currentTarget.value) - 1) })} />
        </label>
        <label>
          Find
          <input type="search" value={find} onInput={(event) => setParameters({ find: event.currentTarget.value })} />
        </label>
        {find && (
          <span role="status" class="muted">
            {look.bright?.size ?? 0} found
          </span>
        )}
      </div>
      {labels.length > 0 && <Legend labels={labels} />}
      <div class="sides">
        <Plane
          points={points}
          look={look}
          height={460}
          label={`${sentences.length} sentences on the first two principal components of their vectors`}
          tell={(number) => told(sentences[number]!)}
          joined={(number) => sentences[number]!.neighbors.map((near) => near.index)}
          onChoose={pick}
        />
        <div>
          <h3>Sentence {at + 1}</h3>
          <p class="picked" dir="auto">
            {told(one)}
          </p>
          <table class="near">
            <thead>
              <tr>
                <th scope="col">Cosine</th>
                <th scope="col">Nearest sentences</th>
              </tr>
            </thead>
            <tbody>
              {one.neighbors.map((near) => (
                <tr key={near.index}>
                  <td class="number">{near.cosine.toFixed(3)}</td>
                  <td>
                    <button type="button" dir="auto" onClick={() => pick(near.index)}>
                      {told(sentences[near.index]!)}
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </div>
    </section>
  );
}

function Legend({ labels }: { labels: readonly string[] }) {
  colors.use();
  return (
    <ul class="legend" aria-label="Labels">
      {labels.slice(0, LEGEND).map((label, kind) => (
        <li key={label}>
          <span aria-hidden="true" style={{ color: series(kind) }}>
            {sign(kind)}
          </span>{" "}
          {label || "no label"}
        </li>
      ))}
      {labels.length > LEGEND && <li class="muted">and {labels.length - LEGEND} more</li>}
    </ul>
  );
}

const told = ({ text, label }: Sentence) => (label ? `${text} [${label}]` : text);

/** The different labels, in the order they come; none where no sentence has one. */
function labelsOf(sentences: readonly Sentence[]): readonly string[] {
  return sentences.some((one) => one.label !== null) ? [...new Set(sentences.map((one) => one.label ?? ""))] : [];
}

function lookOf({ sentences, explained }: MapPayload, labels: readonly string[], at: number, find: string): Look {
  const kinds = new Map(labels.map((label, kind) => [label, kind]));
  const wanted = find.trim().toLowerCase();
  const size = sentences.length > 500 ? 9 : sentences.length > 100 ? 12 : 15;
  const matching = () => sentences.flatMap((one, number) => (told(one).toLowerCase().includes(wanted) ? [number] : []));
  return {
    explained,
    size,
    kind: (number) => kinds.get(sentences[number]!.label ?? "") ?? 0,
    chosen: at,
    joined: sentences[at]!.neighbors.map((near) => near.index),
    ...(wanted && { bright: new Set(matching()) }),
  };
}

function drawing(payload: MapPayload, { parameters }: Route) {
  const { sentences } = payload;
  const labels = labelsOf(sentences);
  const look = lookOf(payload, labels, integerParameter(parameters, "at", sentences.length), parameters["find"] ?? "");
  const [width, height] = [900, 640];
  const named = labels.slice(0, LEGEND);
  const layout = layoutOf(sentences.map((one) => one.point), width, height);
  return {
    width,
    height: height + 20 * named.length + 8,
    draw(painter: Painter) {
      drawScatter(painter, layout, look);
      named.forEach((label, kind) => {
        painter.text(sign(kind), 16, height + 16 + 20 * kind, { size: 15, align: "center", color: series(kind) });
        painter.text(label || "no label", 30, height + 16 + 20 * kind);
      });
    },
  };
}

function table({ sentences }: MapPayload) {
  const labelled = sentences.some((one) => one.label !== null);
  const near = sentences[0]!.neighbors.flatMap((_, number) => [`neighbor_${number + 1}`, `cosine_${number + 1}`]);
  return {
    headers: ["text", ...(labelled ? ["label"] : []), "x", "y", ...near],
    rows: sentences.map((one) => [
      one.text,
      ...(labelled ? [one.label ?? ""] : []),
      ...one.point,
      ...one.neighbors.flatMap(({ index: other, cosine }) => [other + 1, cosine]),
    ]),
  };
}

export const map: View<MapPayload> = {
  name: "map",
  title: "Sentence map",
  about: "Many sentences on one map: what lies near each other is alike to the model.",
  model: true,
  suits: ["reader", "writer", "tuned"],
  fields: [
    { name: "texts", label: "Sentences, one a line; a label may follow behind | or a tab", lines: 5, start: TOPICS },
    { name: "layer", label: "Layer, such as -1 or mean(-4:)", start: "-1" },
    { name: "pooling", label: "Vector (mean, cls or max)", start: "mean" },
    { name: "neighbors", label: "Neighbors", start: "5" },
  ],
  Show,
  drawing,
  table,
};
