// Heat maps and line charts, drawn on a canvas or into a file. Knows pixels and colours; one hue, so that no kind of
// colour sight is needed, and lines that differ in their dashes.
import type { Drawing } from "../../view";
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import type { Chart, Figure, HeatMap } from "./blocks";

const LETTER = 8.2; // pixels of a letter, about
const FEW = 16; // columns up to which a cell has room for its number
const STRONG = 0.655; // where the other colour for a cell's number becomes the more legible one

export interface Cell {
  readonly x: number;
  readonly y: number;
  readonly size: number;
  readonly tip: string;
}

export interface Drawn extends Drawing {
  /** Where pointing tells more. */
  readonly cells: readonly Cell[];
}

export function drawn(figure: Figure): Drawn {
  return figure.kind === "map" ? mapDrawn(figure) : chartDrawn(figure);
}

function mapDrawn(map: HeatMap): Drawn {
  const size = map.columns.length <= FEW ? 44 : 18;
  const longest = Math.max(...map.columns.map((name) => name.length)) * LETTER;
  const upright = longest <= size - 4;
  const left = 20 + Math.max(...map.rows.map((name) => name.length)) * LETTER + 12;
  const top = 20 + (upright ? 20 : longest + 8) + 6;
  const [wide, high] = [size * map.columns.length, size * map.rows.length];
  const [across, down] = [Math.max(wide, map.column_title.length * LETTER), Math.max(high, map.row_title.length * LETTER)];
  const cells = map.weights.flatMap((row, i) =>
    row.map((weight, j) => ({
      x: left + size * j,
      y: top + size * i,
      size,
      tip: `${map.row_title} ${map.rows[i]}, ${map.column_title} ${map.columns[j]}: ${(100 * weight).toFixed(1)}%`,
    })),
  );
  const draw = (painter: Painter) => {
    const { accent, ink, page, muted, rule } = colors.get();
    painter.text(map.column_title, left + across / 2, 10, { align: "center", color: muted });
    painter.text(map.row_title, 10, top + down / 2, { align: "center", color: muted, turned: true });
    map.columns.forEach((name, j) => {
      const x = left + size * (j + 0.5);
      if (upright) painter.text(name, x, top - 12, { align: "center", mono: true });
      else painter.text(name, x, top - 6, { mono: true, turned: true });
    });
    map.rows.forEach((name, i) => painter.text(name, left - 8, top + size * (i + 0.5), { align: "right", mono: true }));
    map.weights.flat().forEach((weight, number) => {
      const { x, y } = cells[number]!;
      painter.rect(x, y, size, size, accent, weight);
      const color = weight >= STRONG ? page : ink;
      if (size > 18) painter.text((100 * weight).toFixed(0), x + size / 2, y + size / 2, { align: "center", size: 12, color });
    });
    frame(painter, left, top, wide, high, rule);
    const y = top + high + 16;
    painter.text("0%", left, y + 6, { size: 12, color: muted });
    for (let step = 0; step <= 10; step++) painter.rect(left + 28 + 12 * step, y, 12, 12, accent, step / 10);
    frame(painter, left + 28, y, 132, 12, rule);
    painter.text("100%", left + 166, y + 6, { size: 12, color: muted });
  };
  return { width: left + Math.max(across, 205) + 2, height: top + Math.max(high + 36, down), cells, draw };
}

const CHART = { width: 420, height: 240, left: 58, top: 16, below: 52 };
const DASHES = [1, 12, 5, 20]; // pixels of a stroke; 1: drawn through

function chartDrawn(chart: Chart): Drawn {
  const { width, height, left, top, below } = CHART;
  const [low, most] = [Math.min(...chart.at), Math.max(...chart.at)];
  const x = (place: number) => (low === most ? left + width / 2 : left + 24 + ((width - 48) * (place - low)) / (most - low));
  const y = (percent: number) => top + height * (1 - percent / 100);
  const cells = chart.lines.flatMap((line) =>
    chart.at.map((place, i) => ({
      x: x(place) - 6,
      y: y(line.values[i]!) - 6,
      size: 12,
      tip: `${line.name}, ${chart.across} ${place}: ${line.values[i]!.toFixed(1)}%`,
    })),
  );
  const draw = (painter: Painter) => {
    const { accent, muted, rule } = colors.get();
    for (let percent = 0; percent <= 100; percent += 20) {
      painter.lines([left, y(percent), left + width, y(percent)], rule, 1, false, 1);
      painter.text(String(percent), left - 8, y(percent), { align: "right", size: 12, color: muted });
    }
    for (const place of chart.at) painter.text(String(place), x(place), top + height + 16, { align: "center", size: 12, color: muted });
    painter.text(chart.across, left + width / 2, top + height + 38, { align: "center", color: muted });
    painter.text(chart.up, 10, top + height / 2, { align: "center", color: muted, turned: true });
    const order = chart.lines.map((line, number) => ({ line, number })).sort((a, b) => b.line.values.at(-1)! - a.line.values.at(-1)!);
    let lowest = 0; // two names must not lie on each other
    for (const { line, number } of order) {
      const points = chart.at.map((place, i) => [x(place), y(line.values[i]!)] as const);
      painter.lines(strokes(points, DASHES[number % DASHES.length]!), accent, 1, false, 2.5);
      for (const [px, py] of points) painter.rect(px - 4, py - 4, 8, 8, accent);
      lowest = Math.max(points.at(-1)![1], lowest + 18);
      painter.text(line.name, left + width + 10, lowest, { color: muted });
    }
  };
  const names = Math.max(...chart.lines.map((line) => line.name.length)) * LETTER + 20;
  return { width: left + width + Math.max(120, names), height: top + height + below, cells, draw };
}

/** A line through points in strokes of some length with gaps as long. */
function strokes(points: readonly (readonly [number, number])[], dash: number): number[] {
  const ends: number[] = [];
  for (let i = 1; i < points.length; i++) {
    const [[x1, y1], [x2, y2]] = [points[i - 1]!, points[i]!];
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const step = dash === 1 ? length : dash;
    for (let from = 0; from < length; from += 2 * step) {
      const [a, b] = [from / length, Math.min(from + step, length) / length];
      ends.push(x1 + (x2 - x1) * a, y1 + (y2 - y1) * a, x1 + (x2 - x1) * b, y1 + (y2 - y1) * b);
    }
  }
  return ends;
}

function frame(painter: Painter, x: number, y: number, width: number, height: number, color: string): void {
  const [right, bottom] = [x + width, y + height];
  painter.lines([x, y, right, y, right, y, right, bottom, right, bottom, x, bottom, x, bottom, x, y], color, 1, false, 1);
}
