// The lines of the head view: from each token that looks to those it looks at, the stronger the darker. Knows places
// and colours, not the screen.
import type { Painter } from "../../painter";
import { colors, dash, series, SERIES, strip } from "../../theme";
import type { Choice, Focus } from "./choice";

const MOST = 3_000; // lines at once; more cannot be told apart, and cost time
const LONG = 200; // tokens from which they lie so close that fewer are enough
const FEWER = 1_000;
const CURVED = 800;
const STEPS = 24; // of darkness

export interface Ends {
  readonly left: number;
  readonly right: number;
  row(index: number): number;
  column(index: number): number;
  /** The first and last line in sight, where not all are. */
  readonly sight?: readonly [number, number];
}

export interface Drawn {
  readonly lines: number;
  readonly left: number;
}

/** The colour of head `number` of those chosen. */
export function headColor(choice: Choice, number: number): string {
  return several(choice) ? series(choice.heads[number]!) : colors.get().accent;
}

/** Its dash: heads that share a colour differ in it. */
export function headDash(choice: Choice, number: number): readonly number[] {
  return several(choice) ? dash(choice.heads[number]!) : [];
}

/** Both, as a strip for a legend in CSS. */
export function headStrip(choice: Choice, number: number): string {
  const { accent } = colors.get();
  return several(choice) ? strip(choice.heads[number]!) : `linear-gradient(${accent}, ${accent})`;
}

/** What to tell where even colour and dash do not tell all chosen heads apart. */
export function alike({ heads }: Choice): string {
  const looks = new Set(heads.map((head) => head % SERIES));
  return looks.size < heads.length ? `Heads ${SERIES} apart share colour and dash: choose fewer to tell them apart.` : "";
}

function several(choice: Choice): boolean {
  return choice.source === "heads" && choice.heads.length > 1;
}

/** Draw the lines of all chosen heads, or only those of the token in focus; says how many, and how many were too many. */
export function drawStrokes(painter: Painter, choice: Choice, focus: Focus | null, ends: Ends): Drawn {
  const maps = choice.heads.map((head) => choice.maps.shown(choice.layer, head, choice));
  const counts = new Uint32Array(256);
  visit(choice, focus, ends.sight, (row, column) => {
    for (const map of maps) counts[Math.floor(map[row + column]! * 255)]!++;
  });
  const threshold = strongest(counts, Math.max(choice.rows.names.length, choice.columns.names.length) < LONG ? MOST : FEWER);
  const total = counts.reduce((sum, count, step) => (step ? sum + count : sum), 0);
  const buckets = new Map<number, number[]>();
  let lines = 0;
  const across = choice.columns.names.length;
  visit(choice, focus, ends.sight, (row, column) => {
    maps.forEach((map, head) => {
      const weight = map[row + column]!;
      if (weight * 255 < threshold) return;
      const bucket = head * (STEPS + 1) + Math.ceil(weight ** 0.75 * STEPS);
      const list = buckets.get(bucket) ?? [];
      buckets.set(bucket, list);
      list.push(ends.left, ends.row(row / across), ends.right, ends.column(column));
      lines++;
    });
  });
  // Weak before strong: what matters lies on top.
  const order = [...buckets].sort(([a], [b]) => (a % (STEPS + 1)) - (b % (STEPS + 1)));
  for (const [bucket, list] of order) {
    const opacity = (bucket % (STEPS + 1)) / STEPS;
    const head = Math.floor(bucket / (STEPS + 1));
    painter.lines(list, headColor(choice, head), opacity, lines <= CURVED, 1 + opacity, headDash(choice, head));
  }
  return { lines, left: total - lines };
}

/** Every cell whose line may be in sight: its row times the number of columns, and its column. */
function visit(choice: Choice, focus: Focus | null, sight: Ends["sight"], cell: (row: number, column: number) => void): void {
  const [down, across] = [choice.rows.names.length, choice.columns.names.length];
  const [top, bottom] = sight ?? [0, Math.max(down, across)];
  const [first, last] = focus?.side === "row" ? [focus.index, focus.index] : [0, down - 1];
  for (let row = first; row <= last; row++) {
    // A line that begins above or below is in sight only if it ends elsewhere.
    let [from, to] = [row < top ? top : 0, Math.min(across - 1, row > bottom ? bottom : across)];
    if (focus?.side === "column") [from, to] = [Math.max(from, focus.index), Math.min(to, focus.index)];
    for (let column = from; column <= to; column++) cell(row * across, column);
  }
}

/** The least of 255 steps that leaves at most so many lines. */
function strongest(counts: Uint32Array, most: number): number {
  let total = 0;
  for (let step = 255; step > 0; step--) {
    total += counts[step]!;
    if (total > most) return Math.min(255, step + 1);
  }
  return 1; // what 8 bits call zero is not drawn
}

/** The weights of the token in focus with each token of the other side, one list a head. */
export function looks(choice: Choice, focus: Focus): Float32Array[] {
  const across = choice.columns.names.length;
  return choice.heads.map((head) => {
    const map = choice.maps.shown(choice.layer, head, choice);
    if (focus.side === "row") return map.slice(focus.index * across, (focus.index + 1) * across);
    return Float32Array.from(choice.rows.names, (_, row) => map[row * across + focus.index]!);
  });
}
