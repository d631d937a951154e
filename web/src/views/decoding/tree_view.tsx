// The parts of a search: the resulting texts, the tree with its layout and drawing, and a table for every step.
import { useMemo, useState } from "preact/hooks";
import { DataTable } from "../../components";
import { count, quoted, truncate, visible } from "../../format";
import { outline, type Painter } from "../../painter";
import { colors } from "../../theme";
import type { TraceCandidate, TraceChoice, TraceDocument, TraceRow, TraceStep } from "../../types";
import "./decoding.css";

const KEYS = new Set(["Enter", " ", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"]);

export function Results({ row }: { row: TraceRow }) {
  const rows = row.results.map((result) => [
    result.text,
    logNumber(result.score),
    logNumber(result.log_probability),
    result.finished ? "yes" : "no",
  ]);
  return (
    <div class="wide">
      <DataTable headers={["text", "score", "log-probability", "finished"]} rows={rows} />
    </div>
  );
}

/** With `onSelect`, boxes are buttons: one can be reached with Tab, the others with arrow keys. */
export function TreeView({ row, onSelect }: { row: TraceRow; onSelect?: (box: Box) => void }) {
  const tree = useMemo(() => layoutTree(row), [row]);
  const [focused, setFocused] = useState(0);
  const current = Math.min(focused, tree.boxes.length - 1);
  const button = (box: Box, number: number) =>
    onSelect && {
      role: "button" as const,
      tabindex: number === current ? 0 : -1, // SVG's spelling
      onFocus: () => setFocused(number),
      onClick: () => onSelect(box),
      onKeyDown: (event: KeyboardEvent) => {
        if (event.ctrlKey || event.altKey || event.metaKey || !KEYS.has(event.key)) return;
        event.preventDefault();
        if (event.key === "Enter" || event.key === " ") return onSelect(box);
        const next = neighborBox(tree, number, event.key);
        (event.currentTarget as Element).parentElement!.querySelectorAll<SVGElement>("[role=button]")[next]?.focus();
      },
    };
  const label = onSelect ? "the search tree; arrow keys move between boxes" : "the search tree";
  return (
    <div
      class="wide tree"
      {...(!onSelect && { tabIndex: 0 })}
      role="region"
      aria-label="Search tree; the tables below contain the same numbers"
    >
      <svg
        width={tree.width}
        height={tree.height}
        viewBox={`0 0 ${tree.width} ${tree.height}`}
        role={onSelect ? "group" : "img"}
        aria-label={label}
      >
        <text class="muted" x={26} y={42}>
          prompt
        </text>
        {tree.headings.map(([text, x]) => (
          <text key={text} class="muted" x={x} y={16}>
            {text}
          </text>
        ))}
        {tree.boxes.map((box, number) => (
          <path key={number} class={classesOf(box)} d={curve(box)} />
        ))}
        {tree.boxes.map((box, number) => (
          <g key={number} class={classesOf(box)} {...button(box, number)}>
            <title>{box.tooltip}</title>
            <rect x={box.x} y={box.y} width={BOX_WIDTH} height={BOX_HEIGHT} />
            {box.candidate.fate === "ended" && (
              <rect class="inner" x={box.x + 2.5} y={box.y + 2.5} width={BOX_WIDTH - 5} height={BOX_HEIGHT - 5} />
            )}
            <text x={box.x + 6} y={box.y + 15}>
              {box.label}
            </text>
            <text class="muted" x={box.x + BOX_WIDTH - 6} y={box.y + 15} text-anchor="end">
              {box.probability}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function classesOf(box: Box): string {
  return [box.selected ? "taken" : box.candidate.fate, box.best && "best"].filter(Boolean).join(" ");
}

function curve({ from: [x, y], x: end, y: top }: Box): string {
  const middle = top + BOX_HEIGHT / 2;
  return `M${x} ${y}C${x + 18} ${y} ${end - 18} ${middle} ${end} ${middle}`;
}

/** A collapsed table for each expansion of each step. */
export function Steps({ row, method }: { row: TraceRow; method: TraceDocument["method"] }) {
  return (
    <section aria-label="Steps">
      <h2>Steps</h2>
      {row.steps.flatMap((step) =>
        step.choices.map((expansion) => (
          <details key={`${step.step}.${expansion.node}`}>
            <summary>{heading(step, expansion)}</summary>
            <div class="wide">
              <DataTable
                headers={[
                  "token",
                  "probability",
                  method === "sample" ? "after filters" : "total log-probability",
                  "outcome",
                ]}
                rows={expansion.candidates.map((one) => [
                  visible(one.text),
                  probabilityPercent(one.log_probability, 3),
                  method === "sample" ? `${(100 * (one.chance ?? 0)).toFixed(3)}%` : logNumber(one.total),
                  outcome(one),
                ])}
              />
            </div>
          </details>
        )),
      )}
    </section>
  );
}

function heading(step: TraceStep, { node, cut }: TraceChoice): string {
  const after = node === 0 ? "after the prompt" : `after node ${node}`;
  const died = step.died.includes(node) ? ", of which nothing was kept" : "";
  const cuts = cut.map(
    (one) =>
      `; ${optionName(one.by)} cut ${count(one.count)} tokens with ${(100 * one.share).toFixed(2)}% of the probability`,
  );
  return `Step ${step.step}, ${after}${died}${cuts.join("")}`;
}

/** The prompt, the model and the settings of the run. */
export function About({ about }: { about: TraceDocument["about"] }) {
  const rows = Object.entries(about).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.entries(value).map(([inner, one]) => [inner, one] as const)
      : [[name, value] as const],
  );
  if (!rows.length) return null;
  const format = (value: unknown) =>
    typeof value === "string" ? value : value === null ? "none" : JSON.stringify(value);
  return (
    <div class="wide">
      <DataTable
        rows={rows.map(([name, value]) => [
          optionName(name),
          { content: format(value), style: { textAlign: "left", whiteSpace: "pre-wrap" } },
        ])}
      />
    </div>
  );
}

const COLUMN = 176;
export const BOX_WIDTH = COLUMN - 40;
export const BOX_HEIGHT = 22;
const LINE = 30;
const MARGIN = 26;
const MAX_LABEL = 12; // characters
const MAX_UNSELECTED = 12; // candidates per column that were not selected

export interface Box {
  readonly candidate: TraceCandidate;
  readonly x: number;
  readonly y: number;
  readonly label: string;
  readonly probability: string;
  readonly selected: boolean;
  /** Whether it is part of the best text. */
  readonly best: boolean;
  readonly tooltip: string;
  /** The node it continues. */
  readonly parent: number;
  /** Start of the line from the parent. */
  readonly from: readonly [number, number];
}

export interface Tree {
  readonly width: number;
  readonly height: number;
  readonly boxes: readonly Box[];
  /** Step numbers and their positions. */
  readonly headings: readonly (readonly [string, number])[];
}

export function layoutTree(row: TraceRow): Tree {
  const best = bestPath(row);
  const died = new Map(row.steps.flatMap((step) => step.died.map((node) => [node, step.step] as const)));
  const ends = new Map<number, readonly [number, number]>([[0, [MARGIN + BOX_WIDTH, MARGIN + BOX_HEIGHT / 2]]]);
  const boxes: Box[] = [];
  let rows = 1;
  row.steps.forEach((_, number) => {
    const x = MARGIN + COLUMN * (number + 1);
    const column = columnOf(row, number);
    rows = Math.max(rows, column.length);
    column.forEach(({ candidate, parent }, line) => {
      const y = MARGIN + LINE * line;
      const child = candidate.child ?? -1;
      if (candidate.child !== undefined) ends.set(child, [x + BOX_WIDTH, y + BOX_HEIGHT / 2]);
      const text = truncate(visible(candidate.text), MAX_LABEL);
      boxes.push({
        candidate,
        x,
        y,
        label: died.has(child) ? `${text} †` : text,
        probability: probabilityPercent(candidate.log_probability),
        selected: candidate.child !== undefined,
        best: best.has(child),
        tooltip: tooltipOf(candidate, died.get(child)),
        parent,
        from: ends.get(parent)!,
      });
    });
  });
  const headings = row.steps.map((_, number) => [String(number + 1), MARGIN + COLUMN * (number + 1)] as const);
  return { width: MARGIN + COLUMN * (row.steps.length + 1), height: MARGIN + LINE * rows + 8, boxes, headings };
}

/** The candidates of a step, best first: all selected ones and the best of the others. */
function columnOf(row: TraceRow, number: number): { candidate: TraceCandidate; parent: number }[] {
  const all = row.steps[number]!.choices.flatMap(({ node, candidates }) =>
    candidates.map((candidate) => ({ candidate, parent: node })),
  );
  all.sort((a, b) => (b.candidate.total ?? -Infinity) - (a.candidate.total ?? -Infinity) || 0);
  let others = 0;
  return all.filter(({ candidate }) => candidate.child !== undefined || others++ < MAX_UNSELECTED);
}

/** The token and the parent of every node. */
function nodesOf(row: TraceRow): Map<number, { readonly token: number; readonly parent: number }> {
  const nodes = new Map<number, { token: number; parent: number }>();
  for (const { choices } of row.steps)
    for (const { node, candidates } of choices)
      for (const one of candidates)
        if (one.child !== undefined) nodes.set(one.child, { token: one.token, parent: node });
  return nodes;
}

function bestPath(row: TraceRow): Set<number> {
  const nodes = nodesOf(row);
  const path = new Set<number>();
  for (let node = row.results[0]?.node ?? 0; node; node = nodes.get(node)?.parent ?? 0) path.add(node);
  return path;
}

/** The tokens from the prompt to a node. */
export function tokensTo(row: TraceRow, node: number): number[] {
  const nodes = nodesOf(row);
  const tokens: number[] = [];
  for (let at = nodes.get(node); at; at = nodes.get(at.parent)) tokens.unshift(at.token);
  return tokens;
}

/** The box that an arrow key leads to: up and down within a column, left to the parent, right to a child. */
export function neighborBox({ boxes }: Tree, at: number, key: string): number {
  const box = boxes[at]!;
  const column = (x: number) => boxes.flatMap((one, number) => (one.x === x ? [number] : []));
  if (key === "ArrowUp" || key === "ArrowDown") {
    const next = at + (key === "ArrowUp" ? -1 : 1);
    return boxes[next]?.x === box.x ? next : at;
  }
  if (key === "Home" || key === "End") return column(box.x).at(key === "Home" ? 0 : -1)!;
  if (key === "ArrowLeft") {
    const parent = boxes.findIndex((one) => one.candidate.child === box.parent);
    return parent < 0 ? at : parent;
  }
  if (key !== "ArrowRight") return at;
  const next = column(box.x + COLUMN);
  const distance = (number: number) => Math.abs(boxes[number]!.y - box.y);
  // for boxes without a child
  const nearest = () => next.reduce((one, other) => (distance(other) < distance(one) ? other : one), next[0] ?? at);
  return next.find((number) => boxes[number]!.parent === box.candidate.child) ?? nearest();
}

function tooltipOf(one: TraceCandidate, diedAt: number | undefined): string {
  const lines = [`${quoted(one.text)}, token ${one.token}: ${outcome(one)}`];
  lines.push(`log-probability ${logNumber(one.log_probability)}, total ${logNumber(one.total)}`);
  if (one.chance !== undefined) lines.push(`probability after the filters ${(100 * one.chance).toFixed(2)}%`);
  if (diedAt !== undefined) lines.push(`no continuation was kept in step ${diedAt}`);
  return lines.join("\n");
}

export function drawTree(painter: Painter, tree: Tree): void {
  const { accent, muted, ink, rule } = colors.get();
  painter.text("prompt", MARGIN, MARGIN + BOX_HEIGHT / 2, { color: muted });
  for (const [text, x] of tree.headings) painter.text(text, x, 12, { color: muted, size: 12 });
  for (const box of tree.boxes) {
    const width = box.best ? 3 : box.selected ? 1.2 : 0.6;
    painter.lines([...box.from, box.x, box.y + BOX_HEIGHT / 2], muted, box.selected ? 1 : 0.35, true, width);
  }
  for (const { x, y, candidate, best, selected, label, probability } of tree.boxes) {
    const middle = y + BOX_HEIGHT / 2;
    painter.rect(x, y, BOX_WIDTH, BOX_HEIGHT, accent, best ? 0.3 : selected ? 0.14 : 0);
    outline(painter, x, y, BOX_WIDTH, BOX_HEIGHT, selected ? accent : rule);
    if (candidate.fate === "ended") outline(painter, x + 2.5, y + 2.5, BOX_WIDTH - 5, BOX_HEIGHT - 5, accent);
    painter.text(label, x + 6, middle, { size: 12, color: selected ? ink : muted });
    if (candidate.fate === "cut") painter.line(x + 5, middle, x + 70, middle, muted);
    painter.text(probability, x + BOX_WIDTH - 6, middle, { size: 11, align: "right", color: muted });
  }
}

export const probabilityPercent = (logProbability: number | null, digits = 1) =>
  `${(100 * (logProbability === null ? 0 : Math.exp(logProbability))).toFixed(digits)}%`;

export const logNumber = (value: number | null) => (value === null ? "-∞" : value.toFixed(3));

/** The name of a setting as on the command line. */
export const optionName = (name: string) => name.replaceAll("_", "-");

/** What became of a candidate. */
export function outcome({ fate, by, child }: TraceCandidate): string {
  const words = { kept: "kept", ended: "end of text", cut: "cut", passed: "not selected" }[fate];
  if (by !== undefined) return `${words} by ${optionName(by)}`;
  return child === undefined ? words : `${words} as node ${child}`;
}

/** All candidates of a row with their step and the node they continue. */
export function allCandidates(row: TraceRow) {
  return row.steps.flatMap(({ step, choices }) =>
    choices.flatMap(({ node, candidates }) => candidates.map((candidate) => ({ step, node, candidate }))),
  );
}
