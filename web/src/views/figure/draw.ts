// The diagram and heat maps as strokes on a painter. Knows places and colours, no component.
import type { Painter } from "../../painter";
import { colors, series } from "../../theme";
import { seen, type FigurePayload, type Layout, type Matrix } from "./payload";

const ARROW = 4;
// As in src/regard/interpret/figure/drawing.py: the colours of kinds of boxes by their numbers, others are grey; and how full
// the grounds of a stack, of a box and of one that is switched off are.
const KINDS: Readonly<Record<string, number>> = { attention: 4, ffn: 5, embedding: 3, linear: 0, softmax: 2 };
const [FRAME, BOX, GONE] = [0.07, 0.28, 0.06];

function ground(kind: string): string {
  return kind in KINDS ? series(KINDS[kind]!) : colors.get().muted;
}

/** The whole figure, `scale` times its own size, its left upper corner at x and y; the chosen box has a thick rim. */
export function drawFigure(painter: Painter, payload: FigurePayload, scale: number, chosen: string, x = 0, y = 0): void {
  const { layout } = payload;
  const look = colors.get();
  for (const frame of layout.frames) outline(painter, x + frame.x * scale, y + frame.y * scale, frame.width * scale, frame.height * scale, look.muted, FRAME, 1);
  for (const line of layout.lines) drawLine(painter, line, scale, x, y);
  for (const shape of layout.shapes) {
    const [left, top, width, height] = [x + shape.x * scale, y + shape.y * scale, shape.width * scale, shape.height * scale];
    const gone = shape.kind === "positions" && payload.without.includes("positions");
    painter.rect(left, top, width, height, look.page);
    painter.rect(left, top, width, height, ground(shape.kind), gone ? GONE : BOX);
    rim(painter, left, top, width, height, shape.box === chosen ? look.other : look.ink, gone ? 0.3 : 1, shape.box === chosen ? 3 : 1);
    const apart = shape.lines.length > 2 ? 12.5 : 14;
    shape.lines.forEach((text, number) => {
      const middle = top + height / 2 + (number - (shape.lines.length - 1) / 2) * apart * scale;
      painter.text(text, left + width / 2, middle, { size: 12 * scale, align: "center", color: gone ? look.muted : look.ink });
    });
  }
  for (const mark of layout.marks) painter.text(mark.text, x + mark.x * scale, y + mark.y * scale, { size: 12 * scale, align: "center" });
}

function drawLine(painter: Painter, line: Layout["lines"][number], scale: number, x: number, y: number): void {
  const look = colors.get();
  const color = line.role === "memory" ? look.accent : line.role === "residual" ? look.muted : look.ink;
  const points = line.points.map((value, place) => value * scale + (place % 2 ? y : x));
  const ends: number[] = [];
  for (let i = 0; i + 3 < points.length; i += 2) ends.push(points[i]!, points[i + 1]!, points[i + 2]!, points[i + 3]!);
  if (line.arrow) {
    const [u, v, tip, point] = points.slice(-4) as [number, number, number, number];
    const size = Math.hypot(tip - u, point - v) || 1;
    const [dx, dy] = [(tip - u) / size, (point - v) / size];
    for (const side of [-1, 1]) ends.push(tip - ARROW * scale * (dx + side * dy), point - ARROW * scale * (dy - side * dx), tip, point);
  }
  painter.lines(ends, color, 1, false, 1.2);
}

function outline(painter: Painter, x: number, y: number, width: number, height: number, color: string, fill: number, thick: number): void {
  painter.rect(x, y, width, height, color, fill);
  rim(painter, x, y, width, height, color, 0.7, thick);
}

function rim(painter: Painter, x: number, y: number, width: number, height: number, color: string, opacity: number, thick: number): void {
  painter.lines([x, y, x + width, y, x + width, y, x + width, y + height, x + width, y + height, x, y + height, x, y + height, x, y], color, opacity, false, thick);
}

export interface Heat {
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly top: number;
  readonly cell: readonly [number, number];
}

const LETTER = 7;
const LONGEST = 14; // letters of a token beside a heat map

export const short = (token: string) => {
  const plain = seen(token);
  return plain.length > LONGEST ? `${plain.slice(0, LONGEST - 1)}…` : plain;
};

/** Where a matrix fits into `room` pixels, with names beside it and, of tokens, above it. */
export function heatOf(matrix: Matrix, room: number, highest = 18): Heat {
  const left = 8 + LETTER * Math.max(1, ...matrix.rows.map((name) => short(name).length));
  const down = matrix.rows.length;
  const most = matrix.columns ? 26 : matrix.across <= 8 ? 40 : 8;
  const wide = Math.max(0.2, Math.min(most, (room - left) / matrix.across));
  const high = Math.max(2, Math.min(matrix.columns ? Math.max(14, wide) : highest, 26));
  const top = matrix.columns ? 8 + LETTER * Math.max(...matrix.columns.map((name) => short(name).length)) : 0;
  return { left, top, cell: [wide, high], width: Math.ceil(left + wide * matrix.across), height: Math.ceil(top + high * down) };
}

/** The largest finite size, for which the colour is full. */
export function largest(values: Float32Array): number {
  let most = 1e-9;
  for (const value of values) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  return most;
}

/** Above zero in one colour and below it in another, the fuller the farther; what is masked stays empty. */
export function drawHeat(painter: Painter, matrix: Matrix, heat: Heat, most: number, x = 0, y = 0): void {
  const look = colors.get();
  const [wide, high] = heat.cell;
  for (const [color, sign] of [[look.accent, 1], [look.other, -1]] as const) {
    // A raster shows the root of a value as opacity; its square makes that the value itself.
    const values = matrix.values.map((value) => (Number.isFinite(value) ? Math.max(0, (sign * value) / most) ** 2 : 0));
    painter.matrix(values, matrix.across, x + heat.left, y + heat.top, wide * matrix.across, high * matrix.rows.length, color);
  }
  const each = Math.ceil(11 / high); // where rows are too low for letters, only some are named
  matrix.rows.forEach((name, row) => {
    if (row % each === 0) painter.text(short(name), x + heat.left - 6, y + heat.top + (row + 0.5) * high, { size: 12, mono: true, align: "right" });
  });
  matrix.columns?.forEach((name, column) => {
    if (wide >= 9) painter.text(short(name), x + heat.left + (column + 0.5) * wide, y + heat.top - 6, { size: 12, mono: true, turned: true });
  });
}
