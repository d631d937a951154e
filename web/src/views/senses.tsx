// One word in several texts: the similarity of its vectors in every layer, as a matrix of cosines and as points in a
// plane.
import { useMemo } from "preact/hooks";
import { Canvas } from "../canvas";
import { ButtonGroup, DataTable, Notes } from "../components";
import { fixedPercent, slice, truncate } from "../format";
import { type Painter, translated } from "../painter";
import { currentRoute, integerParameter, onArrowKeys, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { View, ViewOf } from "../view";
import "./embeddings/embeddings.css";
import { BANK, LIGHT, PLAY, TRAIN } from "./embeddings/examples";
import { drawScatter, layoutOf, type PlotStyle, type Point, ScatterPlot } from "./embeddings/scatter_plot";

type Matrix = readonly (readonly number[])[];

type SensesPayload = ViewOf<"senses">;

const THUMBNAIL = 104;
const MAX_TEXTS = 16; // in an exported picture

function Show({ payload }: { payload: SensesPayload }) {
  const route = currentRoute.use();
  const layer = layerOf(payload, route);
  const plane = payload.planes[layer]!;
  const named = hasContexts(payload, route);
  const style = useMemo(() => plotStyle(plane.explained, named ? contextsOf(payload) : undefined), [plane, named]);
  const explained = plane.explained.reduce((a, b) => a + b, 0);
  const select = (next: number) =>
    setParameters({ layer: String(Math.max(0, Math.min(payload.planes.length - 1, next))) });
  const onKeyDown = onArrowKeys({ ArrowLeft: -1, ArrowRight: 1 }, (step) => select(layer + step));
  return (
    <section aria-label="Word in contexts">
      <Notes notes={payload.notes} />
      <h2>
        The plane of every layer, and the mean cosine of the {payload.texts.length} vectors of “{payload.word}”
      </h2>
      <div class="layers" role="group" aria-label="Layer" onKeyDown={onKeyDown}>
        {payload.planes.map((one, number) => (
          <button key={number} type="button" aria-pressed={number === layer} onClick={() => select(number)}>
            <Canvas
              width={THUMBNAIL}
              height={THUMBNAIL}
              inputs={[one]}
              draw={(painter) =>
                drawScatter(painter, layoutOf(one.points as readonly Point[], THUMBNAIL, THUMBNAIL, 12), {
                  ...plotStyle(one.explained),
                  size: 9,
                })
              }
            />
            {layerName(number)}
            <br />
            cosine {meanCosine(payload.similarity[number]!).toFixed(3)}
          </button>
        ))}
      </div>
      <div class="sides">
        <div>
          <h3>
            {layerName(layer)}: this plane keeps {fixedPercent(explained, 1)} of the variance
          </h3>
          <div class="choices">
            <ButtonGroup
              title="Labels"
              options={{ context: "words around", number: "numbers" }}
              value={named ? "context" : "number"}
              onSelect={(labels) => setParameters({ labels })}
            />
          </div>
          <ScatterPlot
            moves
            points={plane.points as readonly Point[]}
            style={style}
            height={380}
            label={
              `Layer ${layer}: the vectors of ${payload.word} in ${payload.texts.length} texts on their first two ` +
              "principal components"
            }
            describe={(number) => `${number + 1}: ${payload.texts[number]}`}
          />
        </div>
        <div>
          <h3>Texts</h3>
          <ol class="contexts">
            {payload.texts.map((text, number) => (
              <Context key={number} text={text} span={payload.spans[number]!} pieces={payload.pieces[number]!} />
            ))}
          </ol>
        </div>
      </div>
      <h3>Cosine of each pair, layer {layer}</h3>
      <CosineTable values={payload.similarity[layer]!} />
      <p class="muted">
        A static vector would be the same in every text: all cosines would be 1. Colors range from the lowest cosine
        shown to 1.
      </p>
    </section>
  );
}

function Context({
  text,
  span: [start, end],
  pieces,
}: {
  text: string;
  span: readonly [number, number];
  pieces: readonly string[];
}) {
  return (
    <li dir="auto">
      {slice(text, 0, start)}
      <mark>{slice(text, start, end)}</mark>
      {slice(text, end)}
      {pieces.length > 1 && <span class="muted"> ({pieces.join(" ")})</span>}
    </li>
  );
}

function CosineTable({ values }: { values: Matrix }) {
  const { dark } = colors.use();
  const low = lowest(values);
  const cell = (value: number) => {
    const opacity = Math.round(strength(value, low) * (dark ? 45 : 40));
    return {
      content: value.toFixed(3),
      style: { background: `color-mix(in srgb, var(--accent) ${opacity}%, transparent)` },
    };
  };
  return (
    <DataTable
      class="cosines"
      label="Cosines"
      headers={["", ...values.map((_, number) => number + 1)]}
      rows={values.map((row, number) => [number + 1, ...row.map(cell)])}
    />
  );
}

const layerOf = ({ planes }: SensesPayload, { parameters }: Route) =>
  integerParameter(parameters, "layer", planes.length, planes.length - 1);
const layerName = (layer: number) => (layer === 0 ? "0 (embeddings)" : `Layer ${layer}`);
const plotStyle = (explained: readonly number[], labels?: readonly string[]): PlotStyle => ({
  explained,
  group: () => 0,
  size: 15,
  label: (number) => labels?.[number] ?? String(number + 1),
});

const MANY = 16; // texts; so many labels would cover each other
const AROUND = 2; // words before and after

const hasContexts = ({ texts }: SensesPayload, { parameters }: Route) =>
  (parameters["labels"] ?? (texts.length > MANY ? "number" : "context")) === "context";

/** For each text, its number and the words around the word. */
function contextsOf({ texts, spans }: SensesPayload): readonly string[] {
  return texts.map((text, number) => {
    const [start, end] = spans[number]!;
    const before = slice(text, 0, start).split(/\s+/).filter(Boolean);
    const after = slice(text, end).split(/\s+/).filter(Boolean);
    const words = [...before.slice(-AROUND), slice(text, start, end), ...after.slice(0, AROUND)]
      .join(" ")
      .replace(/ (?=[.,;:!?])/g, "");
    return truncate(
      `${number + 1} ${before.length > AROUND ? "… " : ""}${words}${after.length > AROUND ? " …" : ""}`,
      34,
    );
  });
}
const lowest = (values: Matrix) => values.flat().reduce((a, b) => Math.min(a, b), 1);
const strength = (value: number, low: number) => (low < 1 ? (value - low) / (1 - low) : 1);

function meanCosine(values: Matrix): number {
  const pairs = values.flatMap((row, number) => row.filter((_, column) => column !== number));
  return pairs.reduce((a, b) => a + b, 0) / pairs.length;
}

function drawing(payload: SensesPayload, route: Route) {
  const layer = layerOf(payload, route);
  const { points, explained } = payload.planes[layer]!;
  const values = payload.similarity[layer]!;
  const side = 420;
  const low = lowest(values);
  return {
    width: 2 * side + 60,
    height: side + 50 + 18 * Math.min(MAX_TEXTS, payload.texts.length),
    draw(painter: Painter) {
      painter.text(`“${payload.word}” in ${payload.model}, ${layerName(layer)}`, 8, 14, { bold: true });
      drawScatter(
        translated(painter, 0, 28),
        layoutOf(points as readonly Point[], side, side),
        plotStyle(explained, hasContexts(payload, route) ? contextsOf(payload) : undefined),
      );
      // the opacity is the square root
      const cells = Float32Array.from(values.flat(), (value) => (0.45 * strength(value, low)) ** 2);
      painter.matrix(cells, values.length, side + 40, 48, side - 20, side - 20, colors.get().accent);
      const size = (side - 20) / values.length;
      values.forEach((row, number) => {
        const y = 48 + size * (number + 0.5);
        painter.text(String(number + 1), side + 36, y, { size: 11, align: "right" });
        painter.text(String(number + 1), side + 40 + size * (number + 0.5), 38, { size: 11, align: "center" });
        if (size > 34)
          row.forEach((value, column) =>
            painter.text(value.toFixed(2), side + 40 + size * (column + 0.5), y, { size: 11, align: "center" }),
          );
      });
      payload.texts
        .slice(0, MAX_TEXTS)
        .forEach((text, number) =>
          painter.text(`${number + 1}  ${text.slice(0, 110)}`, 8, side + 46 + 18 * number, { size: 12 }),
        );
    },
  };
}

export const senses: View<SensesPayload> = {
  name: "senses",
  title: "Word in contexts",
  about: "One word in several sentences: see how its vectors diverge from layer to layer.",
  group: "vectors",
  examples: [
    { label: "train", values: { word: "train", texts: TRAIN } },
    { label: "bank", values: { word: "bank", texts: BANK } },
    { label: "play", values: { word: "play", texts: PLAY } },
    { label: "light", values: { word: "light", texts: LIGHT } },
  ],
  travels: { layer: true },
  Thumbnail: thumbnails.senses,
  finding: ({ similarity, word, model }) => {
    const means = similarity.map(meanCosine);
    const lowest = means.indexOf(Math.min(...means));
    return (
      `The vectors of “${word}” differ most in layer ${lowest} of ${model}: mean cosine ` +
      `${means[lowest]!.toFixed(2)}, from ${means[0]!.toFixed(2)} in the embeddings`
    );
  },
  verb: "senses",
  excludes: ["translation", "image"],
  fields: [
    { name: "word", label: "Word", start: "train" },
    { name: "texts", label: "Sentences that contain it, one per line", lines: 5, start: TRAIN },
  ],
  Show,
  drawing,
  table: (payload, route) => {
    const layer = layerOf(payload, route);
    const { points } = payload.planes[layer]!;
    return {
      headers: ["number", "text", "layer", "x", "y", ...payload.texts.map((_, number) => `cosine_${number + 1}`)],
      rows: payload.texts.map((text, number) => [
        number + 1,
        text,
        layer,
        ...points[number]!,
        ...payload.similarity[layer]![number]!,
      ]),
    };
  },
};
