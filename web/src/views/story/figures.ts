// Drawings of bars, matrices of numbers and diagrams in stories.
import { outline, type Painter } from "../../painter";
import { colors } from "../../theme";
import type { BarChart, Diagram, NumberMatrix } from "../../types";
import type { Drawing } from "../../view";

/** A rectangle with a tooltip. */
export interface TooltipArea {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly text: string;
}

export interface FigureDrawing extends Drawing {
  readonly tooltips: readonly TooltipArea[];
}

export const CHARACTER = 8.2; // approximate width in pixels
export const longest = (names: readonly string[]) => Math.max(0, ...names.map((name) => name.length)) * CHARACTER;

const BAR = { width: 220, height: 18, gap: 6 };

export function barDrawing(chart: BarChart): FigureDrawing {
  const left = longest(chart.bars.map((bar) => bar.name)) + 12;
  const right = longest(chart.bars.map((bar) => bar.text)) + 12;
  const largest = Math.max(...chart.bars.map((bar) => Math.abs(bar.value))) || 1;
  const step = BAR.height + BAR.gap;
  const width = left + BAR.width + right;
  const tooltips = chart.bars.map((bar, i) => ({
    x: 0,
    y: i * step,
    width,
    height: step,
    text: `${bar.name}: ${bar.text}`,
  }));
  const draw = (painter: Painter) => {
    const { accent, other, muted } = colors.get();
    chart.bars.forEach((bar, i) => {
      const [y, length] = [i * step, Math.max(1, (BAR.width * Math.abs(bar.value)) / largest)];
      painter.text(bar.name, left - 8, y + BAR.height / 2, { align: "right", mono: true });
      painter.rect(left, y, length, BAR.height, bar.value < 0 ? other : accent);
      painter.text(bar.text, left + length + 6, y + BAR.height / 2, { color: muted });
    });
  };
  return { width, height: chart.bars.length * step, tooltips, draw };
}

const CELL = 26; // height in pixels
const TINT = 0.6; // opacity of the largest number, so that the text stays legible

export function numbersDrawing(matrix: NumberMatrix): FigureDrawing {
  const texts = matrix.values.map((row) =>
    row.map((value) => (Math.abs(value) < 0.5 * 10 ** -matrix.digits ? 0 : value).toFixed(matrix.digits)),
  );
  const cell = Math.max(30, longest([...texts.flat(), ...matrix.columns]) + 10);
  const left = longest(matrix.rows) + 12;
  const top = matrix.columns.some((name) => name) ? 24 : 2;
  const largest = Math.max(...matrix.values.flat().map(Math.abs)) || 1;
  const areas = texts.map((row, i) =>
    row.map((text, j) => ({
      x: left + cell * j,
      y: top + CELL * i,
      width: cell,
      height: CELL,
      text: `${matrix.rows[i]} ${matrix.columns[j]}: ${text}`,
    })),
  );
  const draw = (painter: Painter) => {
    const { accent, other, muted, rule } = colors.get();
    matrix.columns.forEach((name, j) =>
      painter.text(name, left + cell * (j + 0.5), top - 12, { align: "center", mono: true, color: muted }),
    );
    matrix.rows.forEach((name, i) =>
      painter.text(name, left - 8, top + CELL * (i + 0.5), { align: "right", mono: true }),
    );
    areas.forEach((row, i) =>
      row.forEach(({ x, y }, j) => {
        const value = matrix.values[i]![j]!;
        painter.rect(x, y, cell, CELL, value < 0 ? other : accent, (TINT * Math.abs(value)) / largest);
        painter.text(texts[i]![j]!, x + cell / 2, y + CELL / 2, { align: "center", size: 13, mono: true });
      }),
    );
    outline(painter, left, top, cell * matrix.columns.length, CELL * matrix.rows.length, rule);
  };
  return {
    width: left + cell * matrix.columns.length + 2,
    height: top + CELL * matrix.rows.length + 2,
    tooltips: areas.flat(),
    draw,
  };
}

const BOX = { across: 28, down: 40, line: 18, padding: 10 };
const HEAD = 7; // length of an arrow's head

export function diagramDrawing(diagram: Diagram): FigureDrawing {
  const lines = diagram.boxes.map((box) => box.text.split("\n"));
  const column =
    Math.max(...diagram.boxes.map((box, i) => (longest(lines[i]!) + 2 * BOX.padding) / box.width)) + BOX.across;
  const high = Math.max(...lines.map((text) => text.length)) * BOX.line + BOX.padding;
  const [firstColumn, firstRow] = [
    Math.min(...diagram.boxes.map((box) => box.column)),
    Math.min(...diagram.boxes.map((box) => box.row)),
  ];
  const areas = diagram.boxes.map((box) => ({
    x: (box.column - firstColumn) * column + 1,
    y: (box.row - firstRow) * (high + BOX.down) + 1,
    width: box.width * column - BOX.across,
    height: high,
    text: box.text.replaceAll("\n", " "),
  }));
  const area = (key: string) => areas[diagram.boxes.findIndex((box) => box.key === key)]!;
  const draw = (painter: Painter) => {
    const { accent, ink, muted, rule } = colors.get();
    for (const arrow of diagram.arrows) drawArrow(painter, area(arrow.start), area(arrow.end), arrow.label, muted);
    areas.forEach(({ x, y, width, height }, i) => {
      const { strong } = diagram.boxes[i]!;
      painter.rect(x, y, width, height, accent, strong ? 0.25 : 0.08);
      outline(painter, x, y, width, height, strong ? accent : rule);
      const middle = y + height / 2 - ((lines[i]!.length - 1) * BOX.line) / 2;
      lines[i]!.forEach((text, number) =>
        painter.text(text, x + width / 2, middle + number * BOX.line, { align: "center", color: ink, bold: strong }),
      );
    });
  };
  return {
    width: Math.max(...areas.map((one) => one.x + one.width)) + 2,
    height: Math.max(...areas.map((one) => one.y + one.height)) + 2,
    tooltips: areas,
    draw,
  };
}

/** From the side of one box to the nearest side of another. */
function drawArrow(painter: Painter, from: TooltipArea, to: TooltipArea, label: string, color: string): void {
  const center = (area: TooltipArea) => [area.x + area.width / 2, area.y + area.height / 2] as const;
  const [[x1, y1], [x2, y2]] = [center(from), center(to)];
  const beside = Math.abs(y1 - y2) < 1;
  // Where both are above each other, the arrow is upright.
  const [low, high] = [Math.max(from.x, to.x), Math.min(from.x + from.width, to.x + to.width)];
  const shared = low < high ? (low + high) / 2 : null;
  const start: readonly [number, number] = beside
    ? [x1 < x2 ? from.x + from.width : from.x, y1]
    : [shared ?? x1, y1 < y2 ? from.y + from.height : from.y];
  const end: readonly [number, number] = beside
    ? [x1 < x2 ? to.x : to.x + to.width, y2]
    : [shared ?? x2, y1 < y2 ? to.y : to.y + to.height];
  painter.line(...start, ...end, color, 1, 1.5);
  const angle = Math.atan2(end[1] - start[1], end[0] - start[0]);
  for (const turn of [0.5, -0.5])
    painter.line(...end, end[0] - HEAD * Math.cos(angle + turn), end[1] - HEAD * Math.sin(angle + turn), color, 1, 1.5);
  if (label) painter.text(label, (start[0] + end[0]) / 2 + 6, (start[1] + end[1]) / 2, { size: 12, color });
}
