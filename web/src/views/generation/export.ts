// Exports of the generation view: the texts as a picture and as a table.
import { count, visible } from "../../format";
import { MARGIN, type Part, stack, textPart, translated, wrap } from "../../painter";
import type { Route } from "../../route";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { allCandidates, drawTree, layoutTree, outcome } from "../search/tree";
import { describeSettings, type Generation, percent, type Run, selectedToken } from "./payload";

const WIDTH = 860;
const LINE = 19;
const MAX_CHARACTERS = 100; // per line
const [LEFT, BAR] = [170, 420];

export function drawing(payload: Generation, { parameters }: Route): Drawing {
  const trees = payload.runs.map((run) => (run.trace?.rows[0] ? layoutTree(run.trace.rows[0]) : null));
  const parts = payload.runs.flatMap((run, number): Part[] => {
    const tree = trees[number];
    return [
      textPart(run.model, { bold: true, size: 15 }, 20),
      textPart(describeSettings(run), { color: colors.get().muted }, 26),
      textOf(run),
      candidates(run, selectedToken(run, parameters)),
      ...(tree ? ([[tree.height + 10, (painter, y) => drawTree(translated(painter, 0, y), tree)]] as Part[]) : []),
    ];
  });
  return stack(parts, Math.max(WIDTH, ...trees.map((tree) => tree?.width ?? 0)));
}

function textOf(run: Run): Part {
  const text = `${run.prompt}${run.continues ? "" : "\n"}${run.tokens.map((token) => token.text).join("")}`;
  const lines = text.split("\n").flatMap((line) => wrap(line, MAX_CHARACTERS));
  return [lines.length * LINE + 14, (painter, y) => lines.forEach((line, number) => painter.text(line, MARGIN, y + LINE * (number + 0.5), { mono: true }))];
}

function candidates(run: Run, at: number): Part {
  const token = run.tokens[at];
  if (!token) return [0, () => undefined];
  const { bars, kept, share } = token.candidates;
  const largest = Math.max(...bars.map((bar) => Math.max(bar.tempered, bar.probability)));
  const sampled = run.method !== "beam";
  return [
    LINE * (bars.length + 3),
    (painter, y) => {
      const { accent, muted, ink, other } = colors.get();
      const title = `Token ${at + 1}: ${visible(token.name)}; the nucleus holds ${count(kept)} tokens with ${percent(share)} of the probability`;
      painter.text(title, MARGIN, y + LINE / 2, { color: muted });
      const columns = { Token: LEFT - 10, Probability: LEFT + BAR + 60, Sum: LEFT + BAR + 130, ...(sampled && { Filtered: LEFT + BAR + 200 }) };
      for (const [text, x] of Object.entries(columns)) painter.text(text, x, y + LINE * 1.5, { align: "right", color: muted, size: 12 });
      bars.forEach((bar, number) => {
        const top = y + LINE * (number + 2);
        const middle = top + LINE / 2;
        const selected = bar.token === token.id;
        const mark = LEFT + (BAR * bar.probability) / largest;
        painter.text(visible(bar.text), columns.Token, middle, { align: "right", mono: true, bold: selected, color: bar.by ? muted : ink });
        painter.rect(LEFT, top + 3, (BAR * bar.tempered) / largest, LINE - 6, bar.by ? muted : accent, bar.by ? 0.3 : selected ? 1 : 0.6);
        painter.line(mark, top + 2, mark, top + LINE - 2, ink);
        painter.text(percent(bar.tempered), columns.Probability, middle, { align: "right" });
        painter.text(bar.reached === null ? "" : percent(bar.reached), columns.Sum, middle, { align: "right", color: muted });
        if (columns.Filtered) painter.text(bar.by ? "cut" : percent(bar.chance), columns.Filtered, middle, { align: "right", color: muted });
        if (!bar.by && bars[number + 1]?.by) painter.line(MARGIN, top + LINE, LEFT + BAR + 210, top + LINE, other, 1, 2);
      });
    },
  ];
}

/** The candidates at every position, then the steps of a beam search. */
export function table(payload: Generation): Table {
  const rows = payload.runs.flatMap((run, number) => [
    ...run.tokens.flatMap((token, at) =>
      token.candidates.bars.map((bar) => {
        const fate = bar.token === token.id ? "selected" : bar.by ? `cut by ${bar.by.replace("_", "-")}` : "not selected";
        return [number + 1, "bar", at + 1, bar.token, bar.text, bar.probability, bar.tempered, bar.reached ?? "", run.method === "beam" ? "" : bar.chance, fate];
      }),
    ),
    ...(run.trace?.rows ?? []).flatMap(allCandidates).map(({ step, candidate: one }) => [
      number + 1,
      "search",
      step,
      one.token,
      one.text,
      one.log_probability === null ? 0 : Math.exp(one.log_probability),
      "",
      "",
      "",
      outcome(one),
    ]),
  ]);
  return { headers: ["text", "what", "place", "token", "name", "probability", "tempered", "reached", "chance", "fate"], rows };
}
