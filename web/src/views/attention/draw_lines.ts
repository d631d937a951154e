// The lines of the head mode: from each token to those it attends to, darker for larger weights.
import type { Painter } from "../../painter";
import { colors, dash, SERIES, series, strip } from "../../theme";
import type { Focus, Selection } from "./selection";

const MAX_LINES = 3_000;
const LONG = 200; // tokens; longer texts get fewer lines
const MAX_LINES_LONG = 1_000;
const MAX_CURVES = 800;
const STEPS = 24; // of opacity

export interface LineGeometry {
  readonly left: number;
  readonly right: number;
  row(index: number): number;
  column(index: number): number;
  /** First and last visible row, if not all are. */
  readonly visible?: readonly [number, number];
}

/** The color of the selected head with this index. */
export function headColor(selection: Selection, number: number): string {
  return several(selection) ? series(selection.heads[number]!) : colors.get().accent;
}

/** The dash pattern; heads with the same color differ in it. */
export function headDash(selection: Selection, number: number): readonly number[] {
  return several(selection) ? dash(selection.heads[number]!) : [];
}

/** Color and dash as a CSS background, for legends. */
export function headStrip(selection: Selection, number: number): string {
  const { accent } = colors.get();
  return several(selection) ? strip(selection.heads[number]!) : `linear-gradient(${accent}, ${accent})`;
}

/** A warning if color and dash do not distinguish all selected heads. */
export function legendWarning({ heads }: Selection): string {
  const styles = new Set(heads.map((head) => head % SERIES));
  return styles.size < heads.length ? `Heads ${SERIES} apart have the same color and dash: select fewer heads to distinguish them.` : "";
}

function several(selection: Selection): boolean {
  return selection.source === "heads" && selection.heads.length > 1;
}

/** Draws the lines of the selected heads, or only those of the token in focus; returns how many were drawn and omitted. */
export function drawLines(painter: Painter, selection: Selection, focus: Focus | null, geometry: LineGeometry): { readonly drawn: number; readonly omitted: number } {
  const maps = selection.heads.map((head) => selection.maps.weights(selection.layer, head, selection));
  const counts = new Uint32Array(256);
  visit(selection, focus, geometry.visible, (row, column) => {
    for (const map of maps) counts[Math.floor(map[row + column]! * 255)]!++;
  });
  const threshold = lowestStep(counts, Math.max(selection.rows.labels.length, selection.columns.labels.length) < LONG ? MAX_LINES : MAX_LINES_LONG);
  const total = counts.reduce((sum, count, step) => (step ? sum + count : sum), 0);
  const buckets = new Map<number, number[]>();
  let drawn = 0;
  const across = selection.columns.labels.length;
  visit(selection, focus, geometry.visible, (row, column) => {
    maps.forEach((map, head) => {
      const weight = map[row + column]!;
      if (weight * 255 < threshold) return;
      const bucket = head * (STEPS + 1) + Math.ceil(weight ** 0.75 * STEPS);
      const list = buckets.get(bucket) ?? [];
      buckets.set(bucket, list);
      list.push(geometry.left, geometry.row(row / across), geometry.right, geometry.column(column));
      drawn++;
    });
  });
  // Small weights first, so that large ones are on top.
  const order = [...buckets].sort(([a], [b]) => (a % (STEPS + 1)) - (b % (STEPS + 1)));
  for (const [bucket, list] of order) {
    const opacity = (bucket % (STEPS + 1)) / STEPS;
    const head = Math.floor(bucket / (STEPS + 1));
    painter.lines(list, headColor(selection, head), opacity, drawn <= MAX_CURVES, 1 + opacity, headDash(selection, head));
  }
  return { drawn, omitted: total - drawn };
}

/** Calls `cell` for each cell whose line may be visible, with its row times the number of columns, and its column. */
function visit(selection: Selection, focus: Focus | null, visible: LineGeometry["visible"], cell: (row: number, column: number) => void): void {
  const [down, across] = [selection.rows.labels.length, selection.columns.labels.length];
  const [top, bottom] = visible ?? [0, Math.max(down, across)];
  const [first, last] = focus?.side === "row" ? [focus.index, focus.index] : [0, down - 1];
  for (let row = first; row <= last; row++) {
    // A line that starts above or below the visible part is visible only if it ends inside.
    let [from, to] = [row < top ? top : 0, Math.min(across - 1, row > bottom ? bottom : across)];
    if (focus?.side === "column") [from, to] = [Math.max(from, focus.index), Math.min(to, focus.index)];
    for (let column = from; column <= to; column++) cell(row * across, column);
  }
}

/** The lowest of 255 weight steps that leaves at most `most` lines. */
function lowestStep(counts: Uint32Array, most: number): number {
  let total = 0;
  for (let step = 255; step > 0; step--) {
    total += counts[step]!;
    if (total > most) return Math.min(255, step + 1);
  }
  return 1; // zero weights are not drawn
}

/** The weights between the token in focus and each token of the other side, one array per head. */
export function focusWeights(selection: Selection, focus: Focus): Float32Array[] {
  const across = selection.columns.labels.length;
  return selection.heads.map((head) => {
    const map = selection.maps.weights(selection.layer, head, selection);
    if (focus.side === "row") return map.slice(focus.index * across, (focus.index + 1) * across);
    return Float32Array.from(selection.rows.labels, (_, row) => map[row * across + focus.index]!);
  });
}
