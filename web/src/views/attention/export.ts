// What is shown, as a picture for a file and as a table of numbers. Knows the same drawing as the screen.
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import type { Choice } from "./choice";
import { cut, drawHeat, layoutOf } from "./heat";
import { explain } from "./neuron";
import { drawStrokes, headColor, headDash } from "./draw_lines";

const [WIDTH, MARGIN, HEADING, HIGH] = [720, 16, 34, 20];
const [ENTRY, LEGEND] = [43, 18]; // a head in the legend, and a row of them

export function drawing(choice: Choice): Drawing {
  if (choice.mode === "lines") return linesDrawing(choice);
  if (choice.mode === "neuron") return neuronDrawing(choice);
  return gridDrawing(choice);
}

export function table(choice: Choice): Table {
  if (choice.mode === "neuron") return neuronTable(choice);
  const { maps, layer, rows, columns, source } = choice;
  const kind = source === "heads" ? maps.raw.kind : source;
  return {
    headers: ["map", "layer", "head", "row", "row_token", "column", "column_token", "weight"],
    rows: choice.heads.flatMap((head) => {
      const map = maps.shown(layer, head, choice);
      return rows.names.flatMap((name, i) =>
        columns.names.map((other, j) => [kind, layer, head, i, name, j, other, rounded(map[i * columns.names.length + j]!)]),
      );
    }),
  };
}

function neuronTable(choice: Choice): Table {
  const { keys, products, query, scores, weights } = explain(choice);
  const dimensions = Array.from(query, (_, d) => d);
  const numbers = (values: Float32Array) => Array.from(values, rounded);
  const rest = choice.columns.names.map((name, j) => [j, name, score(scores[j]!), rounded(weights[j]!), ...numbers(keys[j]!), ...numbers(products[j]!)]);
  return {
    headers: ["column", "column_token", "score", "softmax", ...dimensions.map((d) => `k_${d}`), ...dimensions.map((d) => `qk_${d}`)],
    rows: rest,
  };
}

function heading({ source, layer, heads, maps }: Choice): string {
  if (source === "flow") return "Attention flow";
  if (source === "rollout") return `Attention rollout to layer ${layer}`;
  const which = heads.length === maps.heads ? "all heads" : `head${heads.length > 1 ? "s" : ""} ${heads.join(", ")}`;
  return `${maps.raw.kind}, layer ${layer}, ${which}`;
}

function linesDrawing(choice: Choice): Drawing {
  const { rows, columns, locked } = choice;
  const top = HEADING + legend(choice).length * LEGEND;
  const height = top + Math.max(rows.names.length, columns.names.length) * HIGH + MARGIN;
  const left = WIDTH / 2 - 130;
  const right = WIDTH / 2 + 130;
  const middle = (index: number) => top + (index + 0.5) * HIGH;
  return {
    width: WIDTH,
    height,
    draw(painter) {
      title(painter, choice);
      drawStrokes(painter, choice, locked, { left, right, row: middle, column: middle });
      rows.names.forEach((name, i) => painter.text(cut(name), left - 8, middle(i), { align: "right", bold: locked?.side === "row" && locked.index === i }));
      columns.names.forEach((name, j) => painter.text(cut(name), right + 8, middle(j), { bold: locked?.side === "column" && locked.index === j }));
    },
  };
}

function title(painter: Painter, choice: Choice): void {
  painter.text(heading(choice), MARGIN, HEADING / 2, { bold: true });
  legend(choice).forEach((places, row) =>
    places.forEach((number, column) => {
      const [x, y] = [MARGIN + column * ENTRY, HEADING + (row + 0.5) * LEGEND - 4];
      painter.lines([x, y, x + 22, y], headColor(choice, number), 1, false, 3, headDash(choice, number));
      painter.text(String(choice.heads[number]), x + 25, y, { size: 11 });
    }),
  );
}

/** Which of the chosen heads stand in each row of the legend; one head needs none. */
function legend({ source, heads }: Choice): number[][] {
  if (source !== "heads" || heads.length < 2) return [];
  const wide = Math.floor((WIDTH - 2 * MARGIN) / ENTRY);
  const places = heads.map((_, number) => number);
  return Array.from({ length: Math.ceil(heads.length / wide) }, (_, row) => places.slice(row * wide, (row + 1) * wide));
}

function gridDrawing(choice: Choice): Drawing {
  const { maps, source, layer } = choice;
  const heads = source === "heads" ? maps.heads : 1;
  const layers = source === "flow" ? 1 : maps.layers;
  const size = Math.min(64, (WIDTH - 2 * MARGIN - 24) / heads - 4);
  const layout = layoutOf(choice, WIDTH - 2 * MARGIN);
  const below = HEADING + 20 + layers * (size + 4) + 44;
  const { muted, rule, accent } = colors.get();
  return {
    width: WIDTH,
    height: Math.ceil(below + layout.height + MARGIN),
    draw(painter) {
      painter.text(source === "heads" ? `${maps.raw.kind}: layers down, heads across` : heading(choice), MARGIN, HEADING / 2, { bold: true });
      for (let row = 0; row < layers; row++) {
        const y = HEADING + 20 + row * (size + 4);
        painter.text(source === "flow" ? "" : String(row), MARGIN + 14, y + size / 2, { align: "right", size: 11, color: muted });
        for (let head = 0; head < heads; head++) {
          const x = MARGIN + 24 + head * (size + 4);
          if (row === 0 && heads > 1) painter.text(String(head), x + size / 2, HEADING + 8, { align: "center", size: 11, color: muted });
          painter.matrix(maps.shown(row, head, choice), choice.columns.names.length, x, y, size, size, accent);
          painter.lines([x, y, x + size, y, x + size, y, x + size, y + size, x + size, y + size, x, y + size, x, y + size, x, y], rule, 1, false, 1);
        }
      }
      painter.text(source === "heads" ? `layer ${layer}, head ${choice.heads[0]}` : "", MARGIN, below - 18, { bold: true });
      drawHeat(painter, choice, choice.heads[0]!, layout, MARGIN, below);
    },
  };
}

function neuronDrawing(choice: Choice): Drawing {
  const found = explain(choice);
  const { columns, layer, heads, maps } = choice;
  const { accent, other, muted } = colors.get();
  const [names, strip, gap] = [110, 210, 16];
  const most = (rows: readonly Float32Array[]) => Math.max(1e-9, ...rows.map((row) => row.reduce((a, b) => Math.max(a, Math.abs(b)), 0)));
  const middle = (index: number) => HEADING + 24 + (index + 0.5) * HIGH;
  const stripe = (painter: Painter, row: Float32Array, strongest: number, x: number, y: number) =>
    row.forEach((value, d) => {
      painter.rect(x + (d * strip) / row.length, y - HIGH / 2 + 2, strip / row.length, HIGH - 4, value < 0 ? other : accent, Math.abs(value) / strongest);
    });
  return {
    width: WIDTH,
    height: HEADING + 24 + (columns.names.length + 1) * HIGH + MARGIN,
    draw(painter) {
      painter.text(`${maps.raw.kind}, layer ${layer}, head ${heads[0]}: how ${cut(maps.raw.rows[found.row]!)} looks`, MARGIN, HEADING / 2, { bold: true });
      const x = [MARGIN + names, MARGIN + names + strip + gap, WIDTH - MARGIN - 65, WIDTH - MARGIN] as const;
      ["q and keys", "q × k"].forEach((text, i) => painter.text(text, x[i]!, HEADING + 8, { size: 11, color: muted }));
      ["score", "softmax"].forEach((text, i) => painter.text(text, x[i + 2]!, HEADING + 8, { size: 11, color: muted, align: "right" }));
      painter.text(`q of ${cut(maps.raw.rows[found.row]!)}`, x[0] - 8, middle(0), { align: "right", bold: true });
      stripe(painter, found.query, most([found.query]), x[0], middle(0));
      const [strongestKey, strongestProduct] = [most(found.keys), most(found.products)];
      columns.names.forEach((name, j) => {
        const y = middle(j + 1);
        painter.text(cut(name), x[0] - 8, y, { align: "right" });
        stripe(painter, found.keys[j]!, strongestKey, x[0], y);
        stripe(painter, found.products[j]!, strongestProduct, x[1], y);
        painter.text(score(found.scores[j]!).toString(), x[2], y, { align: "right", mono: true, size: 12 });
        painter.text(found.weights[j]!.toFixed(3), x[3], y, { align: "right", mono: true, size: 12 });
      });
    },
  };
}

function rounded(value: number): number {
  return Number(value.toFixed(4));
}

function score(value: number): number | string {
  return Number.isFinite(value) ? Number(value.toFixed(3)) : "hidden";
}
