// Heat maps with labels beside the cells and a description of the cell under the pointer; and vectors as rows of cells.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Canvas, pointerIn, useWidth } from "./canvas";
import { truncate } from "./format";
import { type Painter, signedMatrix } from "./painter";
import { colors } from "./theme";

const CHARACTER = 7.2; // approximate width in pixels
const LEGIBLE = 10; // smallest cell that gets a label, in pixels
const MAX_LABEL = 14; // characters

export interface MapLayout {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Width and height of a cell. */
  readonly cell: readonly [number, number];
}

/** Square cells that fit into `room` pixels, with labels if there is enough space. */
export function squareLayout(
  rows: readonly string[],
  columns: readonly string[],
  room: number,
  maxCell: number,
): MapLayout {
  const longest = (labels: readonly string[]) =>
    Math.min(108, 12 + CHARACTER * Math.max(0, ...labels.map((label) => [...label].length)));
  const labeled = (room - longest(rows)) / columns.length >= LEGIBLE;
  const [left, top] = labeled ? [longest(rows), longest(columns)] : [0, 0];
  const cell = Math.min(maxCell, (room - left) / Math.max(1, columns.length));
  return { cell: [cell, cell], left, top, width: left + cell * columns.length, height: top + cell * rows.length };
}

/** Row labels on the left and column labels on top; `current` is a highlighted row. */
export function drawLabels(
  painter: Painter,
  rows: readonly string[],
  columns: readonly string[],
  layout: MapLayout,
  x = 0,
  y = 0,
  current = -1,
): void {
  if (!layout.left) return;
  const { ink, muted } = colors.get();
  const [width, height] = layout.cell;
  const style = { size: Math.min(12, width - 1), mono: true };
  rows.forEach((label, i) =>
    painter.text(truncate(label, MAX_LABEL), x + layout.left - 6, y + layout.top + (i + 0.5) * height, {
      ...style,
      align: "right",
      color: i === current ? ink : muted,
      bold: i === current,
    }),
  );
  columns.forEach((label, j) =>
    painter.text(truncate(label, MAX_LABEL), x + layout.left + (j + 0.5) * width, y + layout.top - 6, {
      ...style,
      rotated: true,
      color: muted,
    }),
  );
}

export type CellIndex = readonly [row: number, column: number];

interface Props {
  /** Number of rows and columns. */
  readonly size: readonly [number, number];
  layout(room: number): MapLayout;
  draw(painter: Painter, layout: MapLayout): void;
  readonly inputs: readonly unknown[];
  readonly label: string;
  /** The text below the map; `cell` is under the pointer. */
  describe(cell: CellIndex | null): ComponentChildren;
  onPress?(cell: CellIndex): void;
}

export function HeatMap({ size: [rows, columns], layout: layoutFor, draw, inputs, label, describe, onPress }: Props) {
  const [element, room] = useWidth<HTMLDivElement>();
  const [pointed, setPointed] = useState<CellIndex | null>(null);
  const layout = layoutFor(Math.max(120, room - 2));
  const inside = (row: number, column: number) => row >= 0 && column >= 0 && row < rows && column < columns;
  const cellAt = (event: MouseEvent): CellIndex | null => {
    const { x, y } = pointerIn(event);
    const [row, column] = [
      Math.floor((y - layout.top) / layout.cell[1]),
      Math.floor((x - layout.left) / layout.cell[0]),
    ];
    return inside(row, column) ? [row, column] : null;
  };
  return (
    <div ref={element} class="heat">
      {room > 0 && (
        <div class="wide" tabIndex={layout.width > room ? 0 : -1}>
          <Canvas
            width={Math.ceil(layout.width) + 1}
            height={Math.ceil(layout.height) + 1}
            inputs={[...inputs, room]}
            label={label}
            draw={(painter) => draw(painter, layout)}
            canvas={{
              onPointerMove: (event: PointerEvent) => setPointed(cellAt(event)),
              onPointerLeave: () => setPointed(null),
              onClick: (event: MouseEvent) => {
                const cell = cellAt(event);
                if (cell) onPress?.(cell);
              },
            }}
          />
        </div>
      )}
      <p class="note muted">{describe(pointed && inside(...pointed) ? pointed : null)}</p>
    </div>
  );
}

export const STRIP_HEIGHT = 16;

/** `largest` is the magnitude of the full color; `marked` is a dimension with a vertical line, -1 for none. */
export function drawVector(
  painter: Painter,
  vector: Float32Array,
  largest: number,
  x: number,
  y: number,
  width: number,
  marked = -1,
): void {
  const { ink, rule } = colors.get();
  signedMatrix(painter, vector, largest, vector.length, x, y, width, STRIP_HEIGHT);
  painter.line(x, y + STRIP_HEIGHT, x + width, y + STRIP_HEIGHT, rule);
  const middle = x + ((marked + 0.5) * width) / vector.length;
  if (marked >= 0 && marked < vector.length) painter.line(middle, y - 1, middle, y + STRIP_HEIGHT + 1, ink, 0.8);
}

interface VectorStripProps {
  readonly vector: Float32Array;
  readonly largest: number;
  readonly width: number;
  readonly marked?: number;
  onSelect?(dimension: number): void;
}

export function VectorStrip({ vector, largest, width, marked = -1, onSelect }: VectorStripProps) {
  const press = (event: MouseEvent) =>
    onSelect?.(Math.max(0, Math.min(vector.length - 1, Math.floor(pointerIn(event).across * vector.length))));
  return (
    <Canvas
      width={width}
      height={STRIP_HEIGHT + 2}
      inputs={[vector, largest, marked]}
      draw={(painter) => drawVector(painter, vector, largest, 0, 1, width, marked)}
      {...(onSelect && { canvas: { onClick: press, class: "pressed" } })}
    />
  );
}
