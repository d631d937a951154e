// Exports of the generation view: the texts as a picture and as a table.
import { count, visible } from "../../format";
import { MARGIN, type Part, stack, textPart, translated, wrap } from "../../painter";
import type { Route } from "../../route";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { allCandidates, drawTree, layoutTree, outcome } from "../search/tree_view";
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
  const largest = Math.max(...token.candidates.map((one) => Math.max(one.scaled_probability, one.probability)));
  const sampled = run.method !== "beam";
  return [
    LINE * (token.candidates.length + 3),
    (painter, y) => {
      const { accent, muted, ink, other } = colors.get();
      const title = `Token ${at + 1}: ${visible(token.name)}; the nucleus holds ${count(token.nucleus_size)} tokens with ${percent(token.nucleus_probability)} of the probability`;
      painter.text(title, MARGIN, y + LINE / 2, { color: muted });
      const columns = { Token: LEFT - 10, Probability: LEFT + BAR + 60, Sum: LEFT + BAR + 130, ...(sampled && { Filtered: LEFT + BAR + 200 }) };
      for (const [text, x] of Object.entries(columns)) painter.text(text, x, y + LINE * 1.5, { align: "right", color: muted, size: 12 });
      token.candidates.forEach((one, number) => {
        const top = y + LINE * (number + 2);
        const middle = top + LINE / 2;
        const selected = one.token === token.id;
        const removed = one.removed_by !== null;
        const mark = LEFT + (BAR * one.probability) / largest;
        painter.text(visible(one.text), columns.Token, middle, { align: "right", mono: true, bold: selected, color: removed ? muted : ink });
        painter.rect(LEFT, top + 3, (BAR * one.scaled_probability) / largest, LINE - 6, removed ? muted : accent, removed ? 0.3 : selected ? 1 : 0.6);
        painter.line(mark, top + 2, mark, top + LINE - 2, ink);
        painter.text(percent(one.scaled_probability), columns.Probability, middle, { align: "right" });
        painter.text(one.cumulative_probability === null ? "" : percent(one.cumulative_probability), columns.Sum, middle, { align: "right", color: muted });
        if (columns.Filtered) painter.text(removed ? "removed" : percent(one.sampling_probability), columns.Filtered, middle, { align: "right", color: muted });
        if (!removed && token.candidates[number + 1]?.removed_by) painter.line(MARGIN, top + LINE, LEFT + BAR + 210, top + LINE, other, 1, 2);
      });
    },
  ];
}

/** The candidates at every position, then the steps of a beam search. */
export function table(payload: Generation): Table {
  const rows = payload.runs.flatMap((run, number) => [
    ...run.tokens.flatMap((token, at) =>
      token.candidates.map((one) => {
        const result = one.token === token.id ? "selected" : one.removed_by ? `removed by ${one.removed_by.replace("_", "-")}` : "not selected";
        const sampling = run.method === "beam" ? "" : one.sampling_probability;
        return [number + 1, "candidate", at + 1, one.token, one.text, one.probability, one.scaled_probability, one.cumulative_probability ?? "", sampling, result];
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
  const probabilities = ["probability", "scaled_probability", "cumulative_probability", "sampling_probability"];
  return { headers: ["text", "kind", "position", "token", "name", ...probabilities, "outcome"], rows };
}
