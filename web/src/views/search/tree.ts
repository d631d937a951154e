// The tree of a search in its place: a column for each step, a box for each candidate, a line from its beginning to it.
// Knows the trace and pixels. The page and the SVG and PNG files are drawn from the same places.
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import { decimal, fate, percent, quoted, visible, type Candidate, type Row } from "./trace";

export const COLUMN = 176;
export const WIDE = COLUMN - 40;
export const HIGH = 22;
const LINE = 30;
const MARGIN = 26;
const LETTERS = 12; // of a token that fit into its box
const SHOWN = 12; // candidates in a column, not counting what was taken

export interface Box {
  readonly one: Candidate;
  readonly x: number;
  readonly y: number;
  readonly label: string;
  readonly share: string;
  readonly taken: boolean;
  readonly best: boolean;
  readonly tip: string;
  /** The node it continues. */
  readonly parent: number;
  /** Where its beginning ends: the start of the line to it. */
  readonly from: readonly [number, number];
}

export interface Tree {
  readonly width: number;
  readonly height: number;
  readonly boxes: readonly Box[];
  /** The number of each step and where it stands. */
  readonly heads: readonly (readonly [string, number])[];
}

export function treeOf(row: Row): Tree {
  const best = bestPath(row);
  const died = new Map(row.steps.flatMap((step) => step.died.map((node) => [node, step.step] as const)));
  const ends = new Map<number, readonly [number, number]>([[0, [MARGIN + WIDE, MARGIN + HIGH / 2]]]);
  const boxes: Box[] = [];
  let most = 1;
  row.steps.forEach((_, number) => {
    const x = MARGIN + COLUMN * (number + 1);
    const column = columnOf(row, number);
    most = Math.max(most, column.length);
    column.forEach(({ one, parent }, line) => {
      const y = MARGIN + LINE * line;
      if (one.child !== undefined) ends.set(one.child, [x + WIDE, y + HIGH / 2]);
      const text = visible(one.text);
      const short = text.length <= LETTERS ? text : `${text.slice(0, LETTERS - 1)}…`;
      boxes.push({
        one,
        x,
        y,
        label: died.has(one.child ?? -1) ? `${short} †` : short,
        share: percent(one.log_probability),
        taken: one.child !== undefined,
        best: best.has(one.child ?? -1),
        tip: tipOf(one, died),
        parent,
        from: ends.get(parent)!,
      });
    });
  });
  const heads = row.steps.map((_, number) => [String(number + 1), MARGIN + COLUMN * (number + 1)] as const);
  return { width: MARGIN + COLUMN * (row.steps.length + 1), height: MARGIN + LINE * most + 8, boxes, heads };
}

/** The candidates of a step, best first: all that were taken and the best of the others. */
function columnOf(row: Row, number: number): { one: Candidate; parent: number }[] {
  const every = row.steps[number]!.choices.flatMap((choice) => choice.candidates.map((one) => ({ one, parent: choice.node })));
  every.sort((a, b) => (b.one.total ?? -Infinity) - (a.one.total ?? -Infinity) || 0);
  let others = 0;
  return every.filter(({ one }) => one.child !== undefined || others++ < SHOWN);
}

/** For every node that was taken, its token and the node it continues. */
function taken(row: Row): Map<number, { readonly token: number; readonly parent: number }> {
  const found = new Map<number, { token: number; parent: number }>();
  for (const step of row.steps)
    for (const choice of step.choices)
      for (const one of choice.candidates) if (one.child !== undefined) found.set(one.child, { token: one.token, parent: choice.node });
  return found;
}

/** The nodes of the best text. */
function bestPath(row: Row): Set<number> {
  const nodes = taken(row);
  const found = new Set<number>();
  for (let node = row.results[0]?.node ?? 0; node; node = nodes.get(node)?.parent ?? 0) found.add(node);
  return found;
}

/** The tokens from the prompt to a node. */
export function tokensTo(row: Row, node: number): number[] {
  const nodes = taken(row);
  const found: number[] = [];
  for (let at = nodes.get(node); at; at = nodes.get(at.parent)) found.unshift(at.token);
  return found;
}

/** The box that an arrow key leads to: up and down in a column, left to what a box continues, right to what continues it. */
export function boxBeside({ boxes }: Tree, at: number, key: string): number {
  const here = boxes[at]!;
  const column = (x: number) => boxes.flatMap((box, number) => (box.x === x ? [number] : []));
  if (key === "ArrowUp" || key === "ArrowDown") {
    const next = at + (key === "ArrowUp" ? -1 : 1);
    return boxes[next]?.x === here.x ? next : at;
  }
  if (key === "Home" || key === "End") return column(here.x).at(key === "Home" ? 0 : -1)!;
  if (key === "ArrowLeft") {
    const before = boxes.findIndex((box) => box.one.child === here.parent);
    return before < 0 ? at : before;
  }
  if (key !== "ArrowRight") return at;
  const after = column(here.x + COLUMN);
  // What nothing continues has a neighbour all the same.
  const near = () => after.reduce((one, other) => (Math.abs(boxes[other]!.y - here.y) < Math.abs(boxes[one]!.y - here.y) ? other : one), after[0] ?? at);
  return after.find((number) => boxes[number]!.parent === here.one.child) ?? near();
}

function tipOf(one: Candidate, died: ReadonlyMap<number, number>): string {
  const lines = [`${quoted(one.text)}, token ${one.token}: ${fate(one)}`];
  lines.push(`log-probability ${decimal(one.log_probability)}, in all ${decimal(one.total)}`);
  if (one.chance !== undefined) lines.push(`chance after the filters ${(100 * one.chance).toFixed(2)}%`);
  const step = died.get(one.child ?? -1);
  if (step !== undefined) lines.push(`nothing behind it was kept in step ${step}`);
  return lines.join("\n");
}

export function drawTree(painter: Painter, tree: Tree): void {
  const { accent, muted, ink, rule } = colors.get();
  painter.text("prompt", MARGIN, MARGIN + HIGH / 2, { color: muted });
  for (const [text, x] of tree.heads) painter.text(text, x, 12, { color: muted, size: 12 });
  for (const box of tree.boxes) {
    const ends = [...box.from, box.x, box.y + HIGH / 2];
    painter.lines(ends, muted, box.taken ? 1 : 0.35, true, box.best ? 3 : box.taken ? 1.2 : 0.6);
  }
  for (const box of tree.boxes) {
    const { x, y, one } = box;
    painter.rect(x, y, WIDE, HIGH, accent, box.best ? 0.3 : box.taken ? 0.14 : 0);
    frame(painter, x, y, WIDE, HIGH, box.taken ? accent : rule);
    if (one.fate === "ended") frame(painter, x + 2.5, y + 2.5, WIDE - 5, HIGH - 5, accent);
    painter.text(box.label, x + 6, y + HIGH / 2, { size: 12, color: box.taken ? ink : muted });
    if (one.fate === "cut") painter.lines([x + 5, y + HIGH / 2, x + 70, y + HIGH / 2], muted, 1, false, 1);
    painter.text(box.share, x + WIDE - 6, y + HIGH / 2, { size: 11, align: "right", color: muted });
  }
}

function frame(painter: Painter, x: number, y: number, width: number, height: number, color: string): void {
  const [right, bottom] = [x + width, y + height];
  const ends = [x, y, right, y, right, y, right, bottom, right, bottom, x, bottom, x, bottom, x, y];
  painter.lines(ends, color, 1, false, 1);
}
