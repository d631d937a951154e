// The parts of a search on the page: the resulting texts, the tree, and a table for every step.
import { useMemo, useState } from "preact/hooks";
import { DataTable } from "../../components";
import { count, visible } from "../../format";
import type { TraceChoice, TraceDocument, TraceRow, TraceStep } from "../../types";
import "./search.css";
import { type Box, BOX_HEIGHT, BOX_WIDTH, layoutTree, logNumber, neighborBox, optionName, outcome, probabilityPercent } from "./tree";

const KEYS = new Set(["Enter", " ", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"]);

export function Results({ row }: { row: TraceRow }) {
  const rows = row.results.map((result) => [result.text, logNumber(result.score), logNumber(result.log_probability), result.finished ? "yes" : "no"]);
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
    <div class="wide tree" {...(!onSelect && { tabIndex: 0 })} role="region" aria-label="Search tree; the tables below contain the same numbers">
      <svg width={tree.width} height={tree.height} viewBox={`0 0 ${tree.width} ${tree.height}`} role={onSelect ? "group" : "img"} aria-label={label}>
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
            {box.candidate.fate === "ended" && <rect class="inner" x={box.x + 2.5} y={box.y + 2.5} width={BOX_WIDTH - 5} height={BOX_HEIGHT - 5} />}
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
                headers={["token", "probability", method === "sample" ? "after filters" : "total log-probability", "outcome"]}
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
  const cuts = cut.map((one) => `; ${optionName(one.by)} cut ${count(one.count)} tokens with ${(100 * one.share).toFixed(2)}% of the probability`);
  return `Step ${step.step}, ${after}${died}${cuts.join("")}`;
}

/** The prompt, the model and the settings of the run. */
export function About({ about }: { about: TraceDocument["about"] }) {
  const rows = Object.entries(about).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? Object.entries(value).map(([inner, one]) => [inner, one] as const) : [[name, value] as const],
  );
  if (!rows.length) return null;
  const format = (value: unknown) => (typeof value === "string" ? value : value === null ? "none" : JSON.stringify(value));
  return (
    <div class="wide">
      <DataTable rows={rows.map(([name, value]) => [optionName(name), { content: format(value), style: { textAlign: "left", whiteSpace: "pre-wrap" } }])} />
    </div>
  );
}
