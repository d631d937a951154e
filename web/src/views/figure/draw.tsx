// Drawings of the diagram and of signed heat maps.
import { largestMagnitude, truncate } from "../../format";
import { HeatMap, type MapLayout } from "../../heat_map";
import { outline, type Painter } from "../../painter";
import { colors, series } from "../../theme";
import type { FigureLayout } from "../../types";
import { type FigurePayload, formatNumber, type Matrix, visibleToken } from "./payload";

const ARROW = 4;
// Colors of the kinds of boxes (others are gray), and opacities of the background of a stack, a box, and a removed box.
const KINDS: Readonly<Record<string, number>> = { attention: 4, ffn: 5, embedding: 3, linear: 0, softmax: 2 };
const [FRAME, BOX, REMOVED] = [0.07, 0.28, 0.06];

/** The figure at a scale, with its upper left corner at x and y; the selected box has a thick border. */
export function drawFigure(painter: Painter, payload: FigurePayload, scale: number, selected: string, x = 0, y = 0): void {
  const { layout } = payload;
  const theme = colors.get();
  const scaled = (box: { x: number; y: number; width: number; height: number }) => [x + box.x * scale, y + box.y * scale, box.width * scale, box.height * scale] as const;
  for (const frame of layout.frames) {
    painter.rect(...scaled(frame), theme.muted, FRAME);
    outline(painter, ...scaled(frame), theme.muted);
  }
  for (const line of layout.lines) drawLine(painter, line, scale, x, y);
  for (const shape of layout.shapes) {
    const [left, top, width, height] = scaled(shape);
    const removed = shape.kind === "positions" && payload.without.includes("positions");
    const kind = KINDS[shape.kind];
    painter.rect(left, top, width, height, theme.page);
    painter.rect(left, top, width, height, kind === undefined ? theme.muted : series(kind), removed ? REMOVED : BOX);
    outline(painter, left, top, width, height, shape.box === selected ? theme.other : theme.ink, removed ? 0.3 : 1, shape.box === selected ? 3 : 1);
    const spacing = shape.lines.length > 2 ? 12.5 : 14;
    shape.lines.forEach((text, number) => {
      const middle = top + height / 2 + (number - (shape.lines.length - 1) / 2) * spacing * scale;
      painter.text(text, left + width / 2, middle, { size: 12 * scale, align: "center", color: removed ? theme.muted : theme.ink });
    });
  }
  for (const mark of layout.marks) painter.text(mark.text, x + mark.x * scale, y + mark.y * scale, { size: 12 * scale, align: "center" });
}

function drawLine(painter: Painter, line: FigureLayout["lines"][number], scale: number, x: number, y: number): void {
  const theme = colors.get();
  const color = line.role === "memory" ? theme.accent : line.role === "residual" ? theme.muted : theme.ink;
  const points = line.points.map((value, i) => value * scale + (i % 2 ? y : x));
  const ends: number[] = [];
  for (let i = 0; i + 3 < points.length; i += 2) ends.push(points[i]!, points[i + 1]!, points[i + 2]!, points[i + 3]!);
  if (line.arrow) {
    const [fromX, fromY, toX, toY] = points.slice(-4) as [number, number, number, number];
    const length = Math.hypot(toX - fromX, toY - fromY) || 1;
    const [dx, dy] = [(toX - fromX) / length, (toY - fromY) / length];
    for (const side of [-1, 1]) ends.push(toX - ARROW * scale * (dx + side * dy), toY - ARROW * scale * (dy - side * dx), toX, toY);
  }
  painter.lines(ends, color, 1, false, 1.2);
}

const CHARACTER = 7; // approximate width in pixels

const shortToken = (token: string) => truncate(visibleToken(token), 14);

/** A matrix that fits into `room` pixels, with labels on the left and, for tokens, on top. */
export function signedMapLayout({ rows, columns, width: across }: Matrix, room: number, maxRow = 18): MapLayout {
  const longest = (labels: readonly string[]) => 8 + CHARACTER * Math.max(1, ...labels.map((label) => shortToken(label).length));
  const left = longest(rows);
  const top = columns ? longest(columns) : 0;
  const width = Math.max(0.2, Math.min(columns ? 26 : across <= 8 ? 40 : 8, (room - left) / across));
  const height = Math.max(2, Math.min(columns ? Math.max(14, width) : maxRow, 26));
  return { left, top, cell: [width, height], width: Math.ceil(left + width * across), height: Math.ceil(top + height * rows.length) };
}

/** Positive numbers in one color, negative ones in another; masked cells stay empty. */
export function drawSignedMap(painter: Painter, matrix: Matrix, layout: MapLayout, largest: number, x = 0, y = 0): void {
  const { accent, other } = colors.get();
  const [width, height] = layout.cell;
  const [left, top] = [x + layout.left, y + layout.top];
  for (const [color, sign] of [[accent, 1], [other, -1]] as const) {
    // The opacity of a cell is the square root of its value; squaring cancels that.
    const values = matrix.values.map((value) => (Number.isFinite(value) ? Math.max(0, (sign * value) / largest) ** 2 : 0));
    painter.matrix(values, matrix.width, left, top, width * matrix.width, height * matrix.rows.length, color);
  }
  const every = Math.ceil(11 / height); // low rows are not all labeled
  matrix.rows.forEach((label, row) => {
    if (row % every === 0) painter.text(shortToken(label), left - 6, top + (row + 0.5) * height, { size: 12, mono: true, align: "right" });
  });
  matrix.columns?.forEach((label, column) => {
    if (width >= 9) painter.text(shortToken(label), left + (column + 0.5) * width, top - 6, { size: 12, mono: true, rotated: true });
  });
}

interface SignedHeatMapProps {
  readonly matrix: Matrix;
  readonly label: string;
  /** Maximum height of a row in pixels. */
  readonly maxRow?: number;
  /** Magnitude of the full color; by default the largest one. */
  readonly full?: number;
}

export function SignedHeatMap({ matrix, label, maxRow, full }: SignedHeatMapProps) {
  const largest = full ?? largestMagnitude(matrix.values);
  return (
    <HeatMap
      size={[matrix.rows.length, matrix.width]}
      layout={(room) => signedMapLayout(matrix, Math.max(200, room), maxRow)}
      inputs={[matrix, maxRow, full]}
      label={label}
      draw={(painter, layout) => drawSignedMap(painter, matrix, layout, largest)}
      describe={(cell) => {
        if (!cell) return `Blue is positive, orange negative; full color at ±${formatNumber(largest)}. Point at a cell for its number.`;
        const [row, column] = cell;
        const name = matrix.columns ? visibleToken(matrix.columns[column]!) : `dimension ${column}`;
        return `${visibleToken(matrix.rows[row]!)}, ${name}: ${formatNumber(matrix.values[row * matrix.width + column]!)}`;
      }}
    />
  );
}
