// The texts as a picture and as a table. Knows what is shown and nothing of the server.
import type { Route } from "../../route";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { fate, visible, type Candidate } from "../search/trace";
import { drawTree, treeOf } from "../search/tree";
import { runsOf } from "./stream";
import { percent, placeOf, texts, told, type Generation, type Run } from "./payload";
import type { Painter } from "../../painter";

const WIDTH = 860;
const MARGIN = 20;
const LINE = 19;
const LETTERS = 100; // a line
const LEFT = 170;
const BAR = 420;

type Part = readonly [height: number, draw: (painter: Painter, y: number) => void];

export function drawing(payload: Generation, here: Route): Drawing {
  const trees = runsOf(payload).map((run) => (run.trace?.rows[0] ? treeOf(run.trace.rows[0]) : null));
  const parts = runsOf(payload).flatMap((run, number): Part[] => {
    const tree = trees[number];
    const found = [heading(run), written(payload.prompt, run), bars(run, placeOf(run, here.parameters))];
    // A tree draws itself at the corner, so the painter is moved under it.
    if (tree) found.push([tree.height + 10, (painter, y) => drawTree(moved(painter, y), tree)]);
    return found;
  });
  const width = Math.max(WIDTH, ...trees.map((tree) => tree?.width ?? 0));
  const height = 2 * MARGIN + parts.reduce((sum, [high]) => sum + high, 0);
  return {
    width,
    height,
    draw(painter) {
      let y = MARGIN;
      for (const [high, draw] of parts) {
        draw(painter, y);
        y += high;
      }
    },
  };
}

function heading(run: Run): Part {
  return [
    46,
    (painter, y) => {
      painter.text(run.model.name, MARGIN, y + 8, { bold: true, size: 15 });
      painter.text(told(run), MARGIN, y + 28, { color: colors.get().muted });
    },
  ];
}

function written(prompt: string, run: Run): Part {
  const lines = `${prompt}${run.continues ? "" : "\n"}${texts(run)}`.split("\n").flatMap(wrapped);
  return [lines.length * LINE + 14, (painter, y) => lines.forEach((line, number) => painter.text(line, MARGIN, y + LINE * (number + 0.5), { mono: true, size: 13 }))];
}

function wrapped(line: string): string[] {
  const found: string[] = [];
  let rest = [...line];
  while (rest.length > LETTERS) {
    const space = rest.lastIndexOf(" ", LETTERS);
    const end = space > 0 ? space : LETTERS;
    found.push(rest.slice(0, end).join(""));
    rest = rest.slice(space > 0 ? end + 1 : end);
  }
  return [...found, rest.join("")];
}

function bars(run: Run, at: number): Part {
  const token = run.tokens[at];
  if (!token) return [0, () => undefined];
  const largest = Math.max(...token.bars.map((bar) => Math.max(bar.tempered, bar.probability)));
  return [
    LINE * (token.bars.length + 3),
    (painter, y) => {
      const { accent, muted, ink, other } = colors.get();
      painter.text(`Route ${at + 1}: ${visible(token.name)} was said; ${token.kept.toLocaleString("en")} tokens may be, with ${percent(token.share)}`, MARGIN, y + LINE / 2, { color: muted });
      const [first, second, third] = [LEFT + BAR + 60, LEFT + BAR + 130, LEFT + BAR + 200];
      const byChance = run.settings.method !== "beam";
      const head = (text: string, x: number) => painter.text(text, x, y + LINE * 1.5, { align: "right", color: muted, size: 12 });
      head("Token", LEFT - 10);
      head("Probability", first);
      head("Sum", second);
      if (byChance) head("Chance", third);
      token.bars.forEach((bar, number) => {
        const top = y + LINE * (number + 2);
        const middle = top + LINE / 2;
        const said = bar.token === token.id;
        painter.text(visible(bar.text), LEFT - 10, middle, { align: "right", mono: true, bold: said, color: bar.by ? muted : ink });
        painter.rect(LEFT, top + 3, (BAR * bar.tempered) / largest, LINE - 6, bar.by ? muted : accent, bar.by ? 0.3 : said ? 1 : 0.6);
        painter.line(LEFT + (BAR * bar.probability) / largest, top + 2, LEFT + (BAR * bar.probability) / largest, top + LINE - 2, ink);
        painter.text(percent(bar.tempered), first, middle, { align: "right" });
        painter.text(bar.reached === null ? "" : percent(bar.reached), second, middle, { align: "right", color: muted });
        if (byChance) painter.text(bar.by ? "cut" : percent(bar.chance), third, middle, { align: "right", color: muted });
        if (!bar.by && token.bars[number + 1]?.by) painter.line(MARGIN, top + LINE, LEFT + BAR + 210, top + LINE, other, 1, 2);
      });
    },
  ];
}

function moved(painter: Painter, down: number): Painter {
  return {
    line: (x1, y1, x2, y2, ...look) => painter.line(x1, y1 + down, x2, y2 + down, ...look),
    lines: (ends, ...look) => painter.lines(ends.map((end, number) => (number % 2 ? end + down : end)), ...look),
    rect: (x, y, ...look) => painter.rect(x, y + down, ...look),
    text: (text, x, y, style) => painter.text(text, x, y + down, style),
    matrix: (values, columns, x, y, ...look) => painter.matrix(values, columns, x, y + down, ...look),
  };
}

/** Every place with its bars, and behind them the steps of a search. */
export function table(payload: Generation): Table {
  const headers = ["text", "what", "place", "token", "name", "probability", "tempered", "reached", "chance", "fate"];
  const rows = runsOf(payload).flatMap((run, number) => [
    ...run.tokens.flatMap((token, at) =>
      token.bars.map((bar) => {
        const end = bar.token === token.id ? "said" : bar.by ? `cut by ${bar.by.replace("_", "-")}` : "passed over";
        return [number + 1, "bar", at + 1, bar.token, bar.text, bar.probability, bar.tempered, bar.reached ?? "", run.settings.method === "beam" ? "" : bar.chance, end];
      }),
    ),
    ...(run.trace?.rows ?? []).flatMap((row) =>
      row.steps.flatMap((step) => step.choices.flatMap((choice) => choice.candidates.map((one) => [number + 1, "search", step.step, one.token, one.text, likelihood(one), "", "", "", fate(one)]))),
    ),
  ]);
  return { headers, rows };
}

const likelihood = (one: Candidate) => (one.log_probability === null ? 0 : Math.exp(one.log_probability));
