// Exports of the attention view: a picture and a table of what is selected.
import { largestMagnitude, layerNumbers, range, round, truncate } from "../../format";
import { drawVector } from "../../heat_map";
import { outline, type Painter } from "../../painter";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { drawHeatMap, gridSize, heatMapLayout, mapTitle } from "./grid";
import { aboutRange } from "./legend";
import {
  drawLines,
  drawPatches,
  focusOf,
  headColor,
  headDash,
  type LineGeometry,
  legendWarning,
  sizeOf,
  tokenColumns,
} from "./lines";
import type { Selection } from "./maps";
import { computeWeights } from "./neuron";

const [WIDTH, MARGIN, HEADING, ROW] = [720, 16, 34, 20];
const [ENTRY, LEGEND] = [43, 18]; // width of a legend entry, height of a legend row
const CHARACTER = 7.4; // approximate width in pixels
const ACROSS = 200; // height of the lines between tokens that run across
const IMAGE = 360; // pixels of an image's longer side

export function drawing(selection: Selection): Drawing {
  if (selection.mode === "lines") return linesDrawing(selection);
  if (selection.mode === "neuron") return neuronDrawing(selection);
  return gridDrawing(selection);
}

export function table(selection: Selection): Table {
  const { mode, maps, layer, rows, columns, source, threshold } = selection;
  if (mode === "neuron") return neuronTable(selection);
  const kind = source === "heads" ? maps.raw.kind : source;
  return {
    headers: ["map", "layer", "head", "row", "row_token", "column", "column_token", "weight"],
    rows: selection.heads.flatMap((head) => {
      const map = maps.weights(layer, head, selection);
      const weight = (i: number, j: number) => map[i * columns.labels.length + j]!;
      return rows.labels.flatMap((row, i) =>
        columns.labels.flatMap((column, j) =>
          weight(i, j) < threshold
            ? []
            : [[kind, layer, source === "heads" ? head : "", i, row, j, column, round(weight(i, j), 4)]],
        ),
      );
    }),
  };
}

function neuronTable(selection: Selection): Table {
  const { keys, products, query, scores, weights } = computeWeights(selection);
  const dimensions = range(query.length);
  const numbers = (values: Float32Array) => Array.from(values, (value) => round(value, 4));
  return {
    headers: [
      "column",
      "column_token",
      "score",
      "softmax",
      ...dimensions.map((d) => `k_${d}`),
      ...dimensions.map((d) => `qk_${d}`),
    ],
    rows: selection.columns.labels.map((label, j) => [
      j,
      label,
      score(scores[j]!),
      round(weights[j]!, 4),
      ...numbers(keys[j]!),
      ...numbers(products[j]!),
    ]),
  };
}

const score = (value: number) => (Number.isFinite(value) ? round(value, 3) : "masked");

function heading({ source, layer, heads, maps }: Selection): string {
  if (source === "flow") return "Attention flow";
  if (source === "rollout") return `Attention rollout to layer ${layer}`;
  if (source !== "heads")
    return (
      `${maps.raw.kind} attention, layer ${layer}, ` +
      `${source === "mean" ? "mean of all heads" : "maximum over heads"}`
    );
  const which = heads.length === maps.heads ? "all heads" : `head${heads.length > 1 ? "s" : ""} ${heads.join(", ")}`;
  return `${maps.raw.kind} attention, layer ${layer}, ${which}`;
}

function linesDrawing(selection: Selection): Drawing {
  const { rows, columns, locked, across } = selection;
  const legend = legendRows(selection);
  const warning = legend.length ? legendWarning(selection) : "";
  const top = HEADING + (legend.length + (warning ? 1 : 0)) * LEGEND;
  const label = (text: string) => truncate(text, 24);
  const longest = (labels: readonly string[]) => CHARACTER * Math.max(...labels.map((one) => [...label(one)].length));
  const [left, places] = [
    MARGIN + longest(rows.labels) + 8,
    tokenColumns(rows.labels.map(label), columns.labels.map(label)),
  ];
  const right = left + 260;
  const middle = (index: number) => top + (index + 0.5) * ROW;
  const geometry: LineGeometry = across
    ? {
        down: true,
        row: (i) => [MARGIN + places[i]!.center, top + ROW],
        column: (j) => [MARGIN + places[j]!.center, top + ROW + ACROSS],
      }
    : { down: false, row: (i) => [left, middle(i)], column: (j) => [right, middle(j)] };
  const bold = (side: "row" | "column", index: number) => locked?.side === side && locked.index === index;
  const bottom = across ? top + 2 * ROW + ACROSS : top + Math.max(rows.labels.length, columns.labels.length) * ROW;
  return {
    width: across ? 2 * MARGIN + places.at(-1)!.center + 40 : Math.max(right + longest(columns.labels) + MARGIN, 320),
    height: bottom + LEGEND + MARGIN,
    draw(painter) {
      const { muted } = colors.get();
      painter.text(heading(selection), MARGIN, HEADING / 2, { bold: true });
      legend.forEach((heads, row) =>
        heads.forEach((number, column) => {
          const [x, y] = [MARGIN + column * ENTRY, HEADING + (row + 0.5) * LEGEND - 4];
          painter.lines([x, y, x + 22, y], headColor(selection, number), 1, false, 3, headDash(selection, number));
          painter.text(String(selection.heads[number]), x + 25, y, { size: 11 });
        }),
      );
      painter.text(warning, MARGIN, top - LEGEND, { size: 11, color: muted });
      drawLines(painter, selection, locked, geometry);
      rows.labels.forEach((text, i) => {
        if (across)
          painter.text(label(text), geometry.row(i)[0], top + ROW / 2, { align: "center", bold: bold("row", i) });
        else painter.text(label(text), left - 8, middle(i), { align: "right", bold: bold("row", i) });
      });
      columns.labels.forEach((text, j) => {
        if (across)
          painter.text(label(text), geometry.column(j)[0], top + 1.5 * ROW + ACROSS, {
            align: "center",
            bold: bold("column", j),
          });
        else painter.text(label(text), right + 8, middle(j), { bold: bold("column", j) });
      });
      if (selection.source !== "heads" || selection.threshold)
        painter.text(aboutRange(selection), MARGIN, bottom + LEGEND - 2, { size: 11, color: muted });
    },
  };
}

/** Indices of the selected heads in each row of the legend; a single head needs no legend. */
function legendRows({ source, heads }: Selection): number[][] {
  if (source !== "heads" || heads.length < 2) return [];
  const wide = Math.floor((WIDTH - 2 * MARGIN) / ENTRY);
  return range(Math.ceil(heads.length / wide)).map((row) => range(heads.length).slice(row * wide, (row + 1) * wide));
}

function gridDrawing(selection: Selection): Drawing {
  const { maps, source, layer, image } = selection;
  const [layers, heads] = gridSize(selection);
  const size = Math.min(64, (WIDTH - 2 * MARGIN - 24) / heads - 4);
  const layout = heatMapLayout(selection, WIDTH - 2 * MARGIN);
  const below = HEADING + 20 + layers * (size + 4) + 44;
  const { muted, rule, accent } = colors.get();
  return {
    width: WIDTH,
    height: Math.ceil(below + (image ? sizeOf(image, IMAGE)[1] : layout.height) + MARGIN),
    draw(painter) {
      painter.text(
        source === "heads" ? `${maps.raw.kind}: layers down, heads across` : heading(selection),
        MARGIN,
        HEADING / 2,
        { bold: true },
      );
      for (const row of layerNumbers(layers)) {
        const y = HEADING + 20 + (row - 1) * (size + 4);
        painter.text(source === "flow" ? "" : String(row), MARGIN + 14, y + size / 2, {
          align: "right",
          size: 11,
          color: muted,
        });
        for (const head of range(heads)) {
          const x = MARGIN + 24 + head * (size + 4);
          if (row === 1 && heads > 1)
            painter.text(String(head), x + size / 2, HEADING + 8, { align: "center", size: 11, color: muted });
          if (image) {
            drawPatches(painter, { ...selection, layer: row, heads: [head] }, image, size, x, y);
            continue;
          }
          painter.matrix(
            maps.thumbnail(row, head, selection, Math.ceil(2 * size), selection.threshold),
            selection.columns.labels.length,
            x,
            y,
            size,
            size,
            accent,
          );
          outline(painter, x, y, size, size, rule);
        }
      }
      if (image) {
        painter.text(
          `${heading(selection)}: bright where ${selection.rows.labels[focusOf(selection).index]} attends`,
          MARGIN,
          below - 18,
          { bold: true },
        );
        drawPatches(painter, selection, image, IMAGE, MARGIN, below);
        return;
      }
      painter.text(source === "heads" ? mapTitle(selection, layer, selection.heads[0]!) : "", MARGIN, below - 18, {
        bold: true,
      });
      drawHeatMap(painter, selection, selection.heads[0]!, layout, MARGIN, below);
    },
  };
}

function neuronDrawing(selection: Selection): Drawing {
  const computed = computeWeights(selection);
  const { columns, layer, heads, maps } = selection;
  const { muted } = colors.get();
  const [labels, strip, gap] = [110, 210, 16];
  const middle = (index: number) => HEADING + 24 + (index + 0.5) * ROW;
  const token = truncate(maps.raw.rows[computed.row]!, 12);
  const vector = (painter: Painter, values: Float32Array, largest: number, x: number, y: number) =>
    drawVector(painter, values, largest, x, y - ROW / 2 + 2, strip);
  return {
    width: WIDTH,
    height: HEADING + 24 + (columns.labels.length + 1) * ROW + MARGIN,
    draw(painter) {
      painter.text(`${maps.raw.kind}, layer ${layer}, head ${heads[0]}: weights of ${token}`, MARGIN, HEADING / 2, {
        bold: true,
      });
      const x = [MARGIN + labels, MARGIN + labels + strip + gap, WIDTH - MARGIN - 65, WIDTH - MARGIN] as const;
      ["q and keys", "q × k", "score", "softmax"].forEach((text, i) =>
        painter.text(text, x[i]!, HEADING + 8, { size: 11, color: muted, align: i < 2 ? "left" : "right" }),
      );
      painter.text(`q of ${token}`, x[0] - 8, middle(0), { align: "right", bold: true });
      vector(painter, computed.query, largestMagnitude(computed.query), x[0], middle(0));
      const [largestKey, largestProduct] = [largestMagnitude(...computed.keys), largestMagnitude(...computed.products)];
      columns.labels.forEach((label, j) => {
        const y = middle(j + 1);
        painter.text(truncate(label, 12), x[0] - 8, y, { align: "right" });
        vector(painter, computed.keys[j]!, largestKey, x[0], y);
        vector(painter, computed.products[j]!, largestProduct, x[1], y);
        painter.text(String(score(computed.scores[j]!)), x[2], y, { align: "right", mono: true, size: 12 });
        painter.text(computed.weights[j]!.toFixed(3), x[3], y, { align: "right", mono: true, size: 12 });
      });
    },
  };
}
