// Layers: how good each layer of a model is for a task, and the deck's combinations of layers beside the deck's
// numbers.
import { Canvas } from "../canvas";
import { DataTable, Notes, ScrollRegion } from "../components";
import { count } from "../format";
import { type Painter, translated } from "../painter";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { LayerScore } from "../types";
import type { View, ViewOf } from "../view";
import { REVIEWS } from "./embeddings/examples";

type LayersPayload = ViewOf<"layers">;

const METRICS: Readonly<Record<string, string>> = { f1: "entity F1", accuracy: "accuracy" };
const NAMES = 230; // pixels
const BAR = 380;
const ROW = 24;

function Show({ payload }: { payload: LayersPayload }) {
  const chart = (title: string, scores: readonly LayerScore[]) => {
    const { width, height, draw } = chartDrawing(payload, scores);
    return (
      <ScrollRegion label={`${title}, a drawing`}>
        <Canvas
          width={width}
          height={height}
          inputs={[payload]}
          draw={draw}
          label={[title, ...scores.map((one) => `${one.name}: ${one.score.toFixed(1)}`)].join("; ")}
        />
      </ScrollRegion>
    );
  };
  const score = (one: LayerScore) => [one.score.toFixed(2), `${one.low.toFixed(1)} – ${one.high.toFixed(1)}`];
  return (
    <section aria-label="Layers">
      <Notes notes={payload.notes} />
      <p>
        {metricOf(payload)} on {count(payload.dev)} examples in percent; heads trained on {count(payload.train)} others.
        The model, {payload.model}, is frozen.
      </p>
      <h2>Every layer</h2>
      {chart("Every layer", payload.layers)}
      <details>
        <summary>Numbers</summary>
        <DataTable
          label="Every layer"
          headers={["layer", metricOf(payload), "95% interval", "weight in the mix"]}
          rows={payload.layers.map((one, layer) => [one.name, ...score(one), payload.mix[layer]!.toFixed(3)])}
        />
      </details>
      <h2>Combinations of layers, and the deck’s numbers</h2>
      {chart("Combinations of layers", payload.rows)}
      <DataTable
        label="Combinations of layers"
        headers={[
          "combination",
          `${metricOf(payload)} (${payload.head} head)`,
          "95% interval",
          "the deck: entity F1, BERT base",
        ]}
        rows={payload.rows.map((one) => [one.name, ...score(one), one.deck === null ? "" : one.deck.toFixed(1)])}
      />
      <p class="muted">{payload.deck_note}</p>
    </section>
  );
}

const metricOf = ({ metric }: LayersPayload) => METRICS[metric] ?? metric;
const scale = ({ layers, rows }: LayersPayload) => {
  const low = Math.min(...[...layers, ...rows].map((one) => one.low));
  return Math.max(0, Math.floor((low - 5) / 10) * 10);
};

/** Bars from the lowest multiple of ten that all intervals exceed up to 100, with intervals. */
function chartDrawing(payload: LayersPayload, scores: readonly LayerScore[]) {
  const low = scale(payload);
  const x = (value: number) => NAMES + (BAR * (value - low)) / (100 - low);
  const best = Math.max(...scores.map((one) => one.score));
  const draw = (painter: Painter) => {
    const { accent, ink, muted, other, rule } = colors.get();
    for (let tick = low; tick <= 100; tick += 10) {
      painter.line(x(tick), 0, x(tick), ROW * scores.length, rule);
      painter.text(String(tick), x(tick), ROW * scores.length + 12, { align: "center", size: 12, color: muted });
    }
    scores.forEach((one, row) => {
      const y = ROW * row + 5;
      painter.text(one.name, NAMES - 10, y + 7, { align: "right", size: 12, bold: one.score === best });
      painter.rect(NAMES, y, x(one.score) - NAMES, 14, accent, one.score === best ? 1 : 0.55);
      painter.lines(
        [
          x(one.low),
          y + 7,
          x(one.high),
          y + 7,
          x(one.low),
          y + 3,
          x(one.low),
          y + 11,
          x(one.high),
          y + 3,
          x(one.high),
          y + 11,
        ],
        ink,
        0.9,
        false,
        1.2,
      );
      painter.text(one.score.toFixed(1), NAMES + BAR + 12, y + 7, { size: 12, bold: one.score === best });
      if (one.deck !== null && payload.task === "tag") {
        painter.rect(x(one.deck) - 2, y - 3, 4, 20, other);
        painter.text(`deck ${one.deck.toFixed(1)}`, NAMES + BAR + 56, y + 7, { size: 12, color: other });
      }
    });
  };
  return { width: NAMES + BAR + 150, height: ROW * scores.length + 26, draw };
}

function drawing(payload: LayersPayload) {
  const parts = [payload.layers, payload.rows].map((scores) => chartDrawing(payload, scores));
  return {
    width: parts[0]!.width,
    height: parts.reduce((sum, part) => sum + part.height + 40, 30),
    draw(painter: Painter) {
      painter.text(
        `${payload.model}: ${metricOf(payload)} on ${count(payload.dev)} examples, heads trained on ` +
          `${count(payload.train)}`,
        10,
        14,
        { bold: true },
      );
      let y = 40;
      for (const part of parts) {
        part.draw(translated(painter, 0, y));
        y += part.height + 40;
      }
    },
  };
}

export const layers: View<LayersPayload> = {
  name: "layers",
  title: "Layers",
  about:
    "Which layer makes the best features? Every layer of a frozen model is scored for a task, and combinations of " +
    "layers.",
  verb: "layers",
  Thumbnail: thumbnails.layers,
  group: "vectors",
  excludes: ["translation", "image"],
  examples: [
    { label: "64 film reviews", values: { train: REVIEWS, pooling: "mean" } },
    { label: "The [CLS] vector only", values: { train: REVIEWS, pooling: "cls" } },
    { label: "With GPT instead of BERT", values: { train: REVIEWS, pooling: "mean" }, model: "regard-gpt" },
    { label: "With a sentence embedder", values: { train: REVIEWS, pooling: "mean" }, model: "regard-embed" },
  ],
  finding: (payload) => {
    const best = [...payload.layers].sort((a, b) => b.score - a.score)[0]!;
    const last = payload.layers.at(-1)!;
    const scored = (one: LayerScore) => `${one.score.toFixed(1)} (${one.low.toFixed(0)} to ${one.high.toFixed(0)})`;
    const name = best.name.replace(/^./, (letter) => letter.toUpperCase());
    if (best === last)
      return (
        `${name}, the last of ${payload.model}, scores highest: ${metricOf(payload)} ${scored(best)} on ` +
        `${count(payload.dev)} examples.`
      );
    const overlap =
      best.low <= last.high ? " The 95% intervals overlap: more examples are needed to tell them apart." : "";
    return (
      `${name} of ${payload.model} scores highest: ${metricOf(payload)} ${scored(best)}, the last layer ` +
      `${scored(last)}, on ${count(payload.dev)} examples.${overlap}`
    );
  },
  fields: [
    {
      name: "train",
      label: "Texts, one per line, with a label after | or a tab; a quarter of them is held out for scoring",
      lines: 5,
      start: REVIEWS,
    },
    { name: "pooling", label: "Pooling (mean or cls)", start: "mean" },
  ],
  toRequest: ({ train, pooling, model }) => ({ train, pooling, model, task: "classify" }),
  Show,
  drawing,
  table: ({ layers: each, rows }) => ({
    headers: ["name", "operation", "layers", "head", "score", "low", "high", "deck"],
    rows: [...each, ...rows].map((one) => [
      one.name,
      one.operation,
      one.layers.join(" "),
      one.head,
      one.score,
      one.low,
      one.high,
      one.deck ?? "",
    ]),
  }),
};
