// One word in many texts: how like its vectors are in every layer, as a matrix of cosines and on a plane.
import { useMemo } from "preact/hooks";
import { Canvas } from "../canvas";
import { setParameters, currentRoute, integerParameter, type Route } from "../route";
import { canvasPainter, type Painter } from "../painter";
import { colors } from "../theme";
import type { Payload, View } from "../view";
import { TRAIN } from "./embeddings/examples";
import "./embeddings/embeddings.css";
import { Plane } from "./embeddings/plane";
import { drawScatter, layoutOf, type Look, type Point } from "./embeddings/scatter";

interface Senses extends Payload {
  readonly model: { readonly name: string };
  readonly word: string;
  readonly texts: readonly string[];
  readonly spans: readonly (readonly [number, number])[];
  readonly pieces: readonly (readonly string[])[];
  readonly similarity: readonly (readonly (readonly number[])[])[];
  readonly planes: readonly { readonly points: readonly Point[]; readonly explained: readonly number[] }[];
  readonly notes: readonly string[];
}

const THUMBNAIL = 104;

function Show({ payload }: { payload: Senses }) {
  const { parameters } = currentRoute.use();
  const layer = layerOf(payload, parameters);
  const plane = payload.planes[layer]!;
  const look = useMemo(() => lookOf(plane.explained), [plane]);
  const kept = plane.explained.reduce((a, b) => a + b, 0);
  return (
    <section aria-label="Word in contexts" onKeyDown={(event) => arrows(event, payload, layer)}>
      {payload.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      <h2>Every layer’s plane, and the mean cosine of the {payload.texts.length} vectors of “{payload.word}”</h2>
      <div class="layers" role="group" aria-label="Layer">
        {payload.planes.map((one, number) => (
          <button key={number} type="button" aria-pressed={number === layer} onClick={() => setParameters({ layer: String(number) })}>
            <Canvas
              width={THUMBNAIL}
              height={THUMBNAIL}
              inputs={[one]}
              draw={(context) => drawScatter(canvasPainter(context, colors.get().ink), layoutOf(one.points, THUMBNAIL, THUMBNAIL, 12), { ...lookOf(one.explained), size: 9 })}
            />
            {layerName(number)}
            <br />
            cosine {mean(payload.similarity[number]!).toFixed(3)}
          </button>
        ))}
      </div>
      <div class="sides">
        <div>
          <h3>
            {layerName(layer)}: this plane keeps {(100 * kept).toFixed(1)}% of the variance
          </h3>
          <Plane
            points={plane.points}
            look={look}
            height={380}
            label={`Layer ${layer}: the vectors of ${payload.word} in ${payload.texts.length} texts on their first two principal components`}
            tell={(number) => `${number + 1}: ${payload.texts[number]}`}
          />
        </div>
        <div>
          <h3>Texts</h3>
          <ol class="contexts">
            {payload.texts.map((text, number) => (
              <Marked key={number} text={text} span={payload.spans[number]!} pieces={payload.pieces[number]!} />
            ))}
          </ol>
        </div>
      </div>
      <h3>Cosine of each pair, layer {layer}</h3>
      <div class="wide" tabIndex={0} role="region" aria-label="Cosines">
        <Matrix values={payload.similarity[layer]!} />
      </div>
      <p class="muted">A static vector would be the same in every text: all cosines 1. Colours run from the lowest cosine shown to 1.</p>
    </section>
  );
}

function Marked({ text, span: [start, end], pieces }: { text: string; span: readonly [number, number]; pieces: readonly string[] }) {
  const letters = [...text]; // Python counts characters, not halves of pairs
  return (
    <li dir="auto">
      {letters.slice(0, start).join("")}
      <mark>{letters.slice(start, end).join("")}</mark>
      {letters.slice(end).join("")}
      {pieces.length > 1 && <span class="muted"> ({pieces.join(" ")})</span>}
    </li>
  );
}

function Matrix({ values }: { values: readonly (readonly number[])[] }) {
  const { accent, dark } = colors.use();
  const low = lowest(values);
  return (
    <table class="cosines">
      <thead>
        <tr>
          <td />
          {values.map((_, number) => (
            <th key={number} scope="col">
              {number + 1}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {values.map((row, number) => (
          <tr key={number}>
            <th scope="row">{number + 1}</th>
            {row.map((value, column) => (
              <td key={column} style={{ background: shade(accent, strength(value, low) * (dark ? 0.45 : 0.4)) }}>
                {value.toFixed(3)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function arrows(event: KeyboardEvent, { planes }: Senses, layer: number): void {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !(event.target as HTMLElement).closest(".layers")) return;
  event.preventDefault();
  setParameters({ layer: String(Math.max(0, Math.min(planes.length - 1, layer + step))) });
}

const layerOf = (payload: Senses, parameters: Route["parameters"]) =>
  integerParameter(parameters, "layer", payload.planes.length, payload.planes.length - 1);
const layerName = (layer: number) => (layer === 0 ? "0 (embeddings)" : `Layer ${layer}`);
const lookOf = (explained: readonly number[]): Look => ({ explained, kind: () => 0, size: 15, name: (number) => String(number + 1) });
const lowest = (values: readonly (readonly number[])[]) => values.flat().reduce((a, b) => Math.min(a, b), 1);
const strength = (value: number, low: number) => (low < 1 ? (value - low) / (1 - low) : 1);
const shade = (color: string, opacity: number) => color + Math.round(255 * Math.max(0, Math.min(1, opacity))).toString(16).padStart(2, "0");

function mean(values: readonly (readonly number[])[]): number {
  const off = values.flatMap((row, number) => row.filter((_, column) => column !== number));
  return off.reduce((a, b) => a + b, 0) / off.length;
}

function drawing(payload: Senses, { parameters }: Route) {
  const layer = layerOf(payload, parameters);
  const { points, explained } = payload.planes[layer]!;
  const values = payload.similarity[layer]!;
  const side = 420;
  const low = lowest(values);
  const shown = 16;
  return {
    width: 2 * side + 60,
    height: side + 50 + 18 * Math.min(shown, payload.texts.length),
    draw(painter: Painter) {
      const { accent } = colors.get();
      painter.text(`“${payload.word}” in ${payload.model.name}, ${layerName(layer)}`, 8, 14, { bold: true });
      const inside = moved(painter, 0, 28);
      drawScatter(inside, layoutOf(points, side, side), lookOf(explained));
      const cells = Float32Array.from(values.flat(), (value) => (0.45 * strength(value, low)) ** 2); // its opacity is the root
      painter.matrix(cells, values.length, side + 40, 48, side - 20, side - 20, accent);
      const cell = (side - 20) / values.length;
      values.forEach((row, number) => {
        painter.text(String(number + 1), side + 36, 48 + cell * (number + 0.5), { size: 11, align: "right" });
        painter.text(String(number + 1), side + 40 + cell * (number + 0.5), 38, { size: 11, align: "center" });
        if (cell > 34) row.forEach((value, column) => painter.text(value.toFixed(2), side + 40 + cell * (column + 0.5), 48 + cell * (number + 0.5), { size: 11, align: "center" }));
      });
      payload.texts.slice(0, shown).forEach((text, number) => painter.text(`${number + 1}  ${text.slice(0, 110)}`, 8, side + 46 + 18 * number, { size: 12 }));
    },
  };
}

/** The same painter from another corner; a scatter needs no matrix. */
function moved(painter: Painter, dx: number, dy: number): Painter {
  return {
    ...painter,
    lines: (ends, ...rest) => painter.lines(ends.map((end, number) => end + (number % 2 ? dy : dx)), ...rest),
    rect: (x, y, ...rest) => painter.rect(x + dx, y + dy, ...rest),
    text: (text, x, y, style) => painter.text(text, x + dx, y + dy, style),
  };
}

export const senses: View<Senses> = {
  name: "senses",
  title: "Word in contexts",
  about: "One word, many sentences: see its vectors part ways from layer to layer.",
  model: true,
  suits: ["reader", "writer", "tuned"],
  fields: [
    { name: "word", label: "Word", start: "train" },
    { name: "texts", label: "Sentences that have it, one a line", lines: 5, start: TRAIN },
  ],
  Show,
  drawing,
  table: (payload, { parameters }) => {
    const layer = layerOf(payload, parameters);
    const { points } = payload.planes[layer]!;
    return {
      headers: ["number", "text", "layer", "x", "y", ...payload.texts.map((_, number) => `cosine_${number + 1}`)],
      rows: payload.texts.map((text, number) => [number + 1, text, layer, ...points[number]!, ...payload.similarity[layer]![number]!]),
    };
  },
};
