// Heat maps with labels beside the cells and a description of the cell under the pointer.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Canvas, useWidth } from "./canvas";
import { truncate } from "./format";
import type { Painter } from "./painter";
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
export function squareLayout(rows: readonly string[], columns: readonly string[], room: number, maxCell: number): MapLayout {
  const longest = (labels: readonly string[]) => Math.min(108, 12 + CHARACTER * Math.max(0, ...labels.map((label) => [...label].length)));
  const labeled = (room - longest(rows)) / columns.length >= LEGIBLE;
  const [left, top] = labeled ? [longest(rows), longest(columns)] : [0, 0];
  const cell = Math.min(maxCell, (room - left) / Math.max(1, columns.length));
  return { cell: [cell, cell], left, top, width: left + cell * columns.length, height: top + cell * rows.length };
}

/** Row labels on the left and column labels on top; `current` is a highlighted row. */
export function drawLabels(painter: Painter, rows: readonly string[], columns: readonly string[], layout: MapLayout, x = 0, y = 0, current = -1): void {
  if (!layout.left) return;
  const { ink, muted } = colors.get();
  const [width, height] = layout.cell;
  const style = { size: Math.min(12, width - 1), mono: true };
  rows.forEach((label, i) =>
    painter.text(truncate(label, MAX_LABEL), x + layout.left - 6, y + layout.top + (i + 0.5) * height, { ...style, align: "right", color: i === current ? ink : muted, bold: i === current }),
  );
  columns.forEach((label, j) => painter.text(truncate(label, MAX_LABEL), x + layout.left + (j + 0.5) * width, y + layout.top - 6, { ...style, rotated: true, color: muted }));
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
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - layout.top) / layout.cell[1]);
    const column = Math.floor((event.clientX - box.left - layout.left) / layout.cell[0]);
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
