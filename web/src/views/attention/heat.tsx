// One map as a heat map, with names where there is room and the number of the cell that is pointed at.
import { useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { useWidth } from "../../canvas";
import { canvasPainter, type Painter } from "../../painter";
import { colors } from "../../theme";
import type { Choice } from "./choice";

const LARGEST_CELL = 26;
const LEGIBLE = 11; // pixels of a cell from which its name can be read
const LETTER = 7;

interface Layout {
  readonly cell: number;
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export function layoutOf({ rows, columns }: Choice, room: number): Layout {
  const longest = (names: readonly string[]) => Math.min(96, 10 + LETTER * Math.max(0, ...names.map((name) => name.length)));
  const named = (room - longest(rows.names)) / columns.names.length >= LEGIBLE;
  const [left, top] = named ? [longest(rows.names), longest(columns.names)] : [0, 0];
  const cell = Math.min(LARGEST_CELL, (room - left) / Math.max(1, columns.names.length));
  return { cell, left, top, width: left + cell * columns.names.length, height: top + cell * rows.names.length };
}

export function drawHeat(painter: Painter, choice: Choice, head: number, { cell, left, top }: Layout, x = 0, y = 0): void {
  const { rows, columns, maps, layer } = choice;
  const { accent, muted } = colors.get();
  const size = Math.min(12, cell - 1);
  if (left) {
    rows.names.forEach((name, i) => painter.text(cut(name), x + left - 5, y + top + (i + 0.5) * cell, { align: "right", size, color: muted, mono: true }));
    columns.names.forEach((name, j) => painter.text(cut(name), x + left + (j + 0.5) * cell, y + top - 5, { turned: true, size, color: muted, mono: true }));
  }
  const [width, height] = [cell * columns.names.length, cell * rows.names.length];
  painter.matrix(maps.shown(layer, head, choice), columns.names.length, x + left, y + top, width, height, accent);
  const { rule } = colors.get();
  const [x1, y1, x2, y2] = [x + left, y + top, x + left + width, y + top + height];
  painter.lines([x1, y1, x2, y1, x2, y1, x2, y2, x2, y2, x1, y2, x1, y2, x1, y1], rule, 1, false, 1);
}

export function Heat({ choice, head }: { choice: Choice; head: number }) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [at, point] = useState<[number, number] | null>(null);
  const layout = layoutOf(choice, Math.max(120, width - 2));
  const { rows, columns, maps, layer } = choice;
  const weight = at && maps.shown(layer, head, choice)[at[0] * columns.names.length + at[1]];
  const move = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - layout.top) / layout.cell);
    const column = Math.floor((event.clientX - box.left - layout.left) / layout.cell);
    const hit = row >= 0 && column >= 0 && row < rows.names.length && column < columns.names.length;
    point(hit ? [row, column] : null);
  };
  return (
    <div ref={element} class="heat">
      <Canvas
        width={Math.ceil(layout.width) + 1}
        height={Math.ceil(layout.height) + 1}
        inputs={[choice, head, layout.cell, layout.left]}
        label={`Map of layer ${layer}, head ${head}: ${rows.names.length} by ${columns.names.length} weights`}
        draw={(context) => drawHeat(canvasPainter(context, colors.get().ink), choice, head, layout)}
        canvas={{ onPointerMove: move, onPointerLeave: () => point(null) }}
      />
      <p class="note muted">
        {at && weight !== null && weight !== undefined ? (
          <>
            <bdi class="token">{rows.names[at[0]]}</bdi> looks at <bdi class="token">{columns.names[at[1]]}</bdi>: {weight.toFixed(3)}
          </>
        ) : (
          "Down: who looks. Across: at whom. Point at a cell for its number."
        )}
      </p>
    </div>
  );
}

export function cut(name: string): string {
  const letters = [...name];
  return letters.length > 12 ? `${letters.slice(0, 11).join("")}…` : name;
}
