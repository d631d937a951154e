// The parts of a search on a page: the texts it found, its tree, and a table for every step. Knows the trace.
import { useMemo, useState } from "preact/hooks";
import "./search.css";
import { decimal, fate, percent, typed, visible, type Choice, type Row, type Step, type Trace } from "./trace";
import { boxBeside, HIGH, WIDE, treeOf, type Box } from "./tree";

const KEYS = new Set(["Enter", " ", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"]);

export function Results({ row }: { row: Row }) {
  return (
    <div class="wide">
      <table>
        <thead>
          <tr>
            <th scope="col">text</th>
            <th scope="col">score</th>
            <th scope="col">log-probability</th>
            <th scope="col">finished</th>
          </tr>
        </thead>
        <tbody>
          {row.results.map((result) => (
            <tr key={result.node}>
              <td dir="auto">{result.text}</td>
              <td>{decimal(result.score)}</td>
              <td>{decimal(result.log_probability)}</td>
              <td>{result.finished ? "yes" : "no"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `pick` is called with a box that is pressed; without it, boxes are there to be read. One box can be tabbed to, and arrows go on from it. */
export function TreeOf({ row, pick }: { row: Row; pick?: (box: Box) => void }) {
  const tree = useMemo(() => treeOf(row), [row]);
  const [chosen, choose] = useState(0);
  const at = Math.min(chosen, tree.boxes.length - 1);
  const pressed = (box: Box, number: number) =>
    pick && {
      role: "button" as const,
      tabindex: number === at ? 0 : -1, // as SVG spells it
      onFocus: () => choose(number),
      onClick: () => pick(box),
      onKeyDown: (event: KeyboardEvent) => {
        if (event.ctrlKey || event.altKey || event.metaKey || !KEYS.has(event.key)) return;
        event.preventDefault();
        if (event.key === "Enter" || event.key === " ") return pick(box);
        const next = boxBeside(tree, number, event.key);
        (event.currentTarget as Element).parentElement!.querySelectorAll<SVGElement>("[role=button]")[next]?.focus();
      },
    };
  return (
    <div class="wide tree" {...(!pick && { tabIndex: 0 })} role="region" aria-label="The tree of the search; the tables below say the same">
      <svg width={tree.width} height={tree.height} viewBox={`0 0 ${tree.width} ${tree.height}`} role={pick ? "group" : "img"} aria-label={pick ? "the tree of the search; arrow keys go from box to box" : "the tree of the search"}>
        <text class="muted" x={26} y={42}>
          prompt
        </text>
        {tree.heads.map(([text, x]) => (
          <text key={text} class="muted" x={x} y={16}>
            {text}
          </text>
        ))}
        {tree.boxes.map((box, number) => (
          <path key={number} class={looks(box)} d={curve(box)} />
        ))}
        {tree.boxes.map((box, number) => (
          <g key={number} class={looks(box)} {...pressed(box, number)}>
            <title>{box.tip}</title>
            <rect x={box.x} y={box.y} width={WIDE} height={HIGH} />
            {box.one.fate === "ended" && <rect class="inner" x={box.x + 2.5} y={box.y + 2.5} width={WIDE - 5} height={HIGH - 5} />}
            <text x={box.x + 6} y={box.y + 15}>
              {box.label}
            </text>
            <text class="muted" x={box.x + WIDE - 6} y={box.y + 15} text-anchor="end">
              {box.share}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function looks(box: Box): string {
  return [box.taken ? "taken" : box.one.fate, box.best && "best"].filter(Boolean).join(" ");
}

function curve({ from: [x, y], x: end, y: top }: Box): string {
  const middle = top + HIGH / 2;
  return `M${x} ${y}C${x + 18} ${y} ${end - 18} ${middle} ${end} ${middle}`;
}

/** A table for each beginning of each step, closed until it is opened. */
export function Steps({ row, method }: { row: Row; method: Trace["method"] }) {
  return (
    <section aria-label="Steps">
      <h2>Steps</h2>
      {row.steps.flatMap((step) =>
        step.choices.map((choice) => (
          <details key={`${step.step}.${choice.node}`}>
            <summary>{heading(step, choice)}</summary>
            <Candidates choice={choice} sampled={method === "sample"} />
          </details>
        )),
      )}
    </section>
  );
}

function heading(step: Step, choice: Choice): string {
  const behind = choice.node === 0 ? "behind the prompt" : `behind node ${choice.node}`;
  const dead = step.died.includes(choice.node) ? ", of which nothing was kept" : "";
  const cuts = choice.cut.map(
    (cut) => `; ${typed(cut.by)} cut ${cut.count.toLocaleString("en")} tokens, ${(100 * cut.share).toFixed(2)}% of the probability`,
  );
  return `Step ${step.step}, ${behind}${dead}${cuts.join("")}`;
}

function Candidates({ choice, sampled }: { choice: Choice; sampled: boolean }) {
  return (
    <div class="wide">
      <table>
        <thead>
          <tr>
            <th scope="col">token</th>
            <th scope="col">probability</th>
            <th scope="col">{sampled ? "chance" : "log-probability in all"}</th>
            <th scope="col">fate</th>
          </tr>
        </thead>
        <tbody>
          {choice.candidates.map((one) => (
            <tr key={one.token}>
              <td>{visible(one.text)}</td>
              <td>{percent(one.log_probability, 3)}</td>
              <td>{sampled ? `${(100 * (one.chance ?? 0)).toFixed(3)}%` : decimal(one.total)}</td>
              <td>{fate(one)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What the caller knows of the run: the prompt, the model, the settings. */
export function About({ about }: { about: Trace["about"] }) {
  const rows = Object.entries(about).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.entries(value).map(([inner, one]) => [typed(inner), one] as const)
      : [[typed(name), value] as const],
  );
  if (!rows.length) return null;
  return (
    <div class="wide">
      <table>
        <tbody>
          {rows.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td style={{ textAlign: "left", whiteSpace: "pre-wrap" }}>{written(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const written = (value: unknown) => (typeof value === "string" ? value : value === null ? "none" : JSON.stringify(value));
