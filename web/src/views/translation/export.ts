// A translation as files: the picture of the step and the alignment that are shown, and their numbers as a table.
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { visible } from "../search/trace";
import { alignedOf } from "./alignment";
import { drawMatrix, layoutOf } from "./matrix";
import { headsOf, scoresOf, weightsOf, type Choice, type Look } from "./payload";
import { drawStrip, largest } from "./strip";
import { percent } from "./time";

const WIDTH = 860;
const MARGIN = 20;
const LINE = 26;
const LETTERS = 84; // of a heading that fit into the picture

function cut(text: string): string {
  const letters = [...text.replace(/\s/g, " ")];
  return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : text;
}

export function drawing(choice: Choice | null): Drawing {
  if (!choice) return { width: 420, height: 60, draw: (painter) => painter.text("No translation.", MARGIN, 30) };
  const { payload, told, look, step } = choice;
  const aligned = look && alignedOf(choice);
  const layout = aligned && aligned.rows.length && aligned.columns.length ? layoutOf(aligned, Math.min(WIDTH - 2 * MARGIN, 560)) : null;
  const top = 96;
  const matrix = top + (look ? (payload.source.tokens.length + 3) * LINE : 0);
  return {
    width: WIDTH,
    height: matrix + (layout ? layout.height + 40 : 0) + MARGIN,
    draw(painter) {
      const { muted } = colors.get();
      painter.text(cut(`${payload.text}  →  ${told.text}`), MARGIN, 24, { size: 16, bold: true });
      const said = told.steps[step]!;
      painter.text(`Time step ${step + 1} of ${told.steps.length} says ${visible(said.token)}: ${percent(said.probability)}`, MARGIN, 50);
      const about = look ? `Encoder-decoder attention: ${headsOf(choice)}` : "No encoder-decoder attention";
      painter.text(`${choice.model.name}. ${about}`, MARGIN, 72, { size: 12, color: muted });
      if (look) drawLook(painter, choice, look, top);
      if (layout && aligned) {
        painter.text(`${choice.hard ? "Hard" : "Soft"} alignment of ${choice.level}s`, MARGIN, matrix + 12, { bold: true });
        drawMatrix(painter, aligned, choice.hard, layout, MARGIN, matrix + 30);
      }
    },
  };
}

function drawLook(painter: Painter, { payload, shown, d }: Choice, look: Look, top: number): void {
  const { muted, accent } = colors.get();
  const [first, score, weight, second, last] = [MARGIN + 110, MARGIN + 370, MARGIN + 460, MARGIN + 480, WIDTH - MARGIN];
  const wide = 180;
  const small = { size: 11, color: muted };
  painter.text("1. state", first, top, small);
  if (shown > 1) painter.text("2. score", score, top, { ...small, align: "right" });
  if (shown > 2) painter.text("3. softmax", weight, top, { ...small, align: "right" });
  if (shown > 2) painter.text("weight × value", second, top, small);
  if (shown > 2) painter.text(`number ${d}`, last, top, { ...small, align: "right" });
  const [states, values] = [largest(look.states), largest(look.values)];
  payload.source.tokens.forEach((token, at) => {
    const y = top + (at + 1) * LINE;
    painter.text([...visible(token)].slice(0, 14).join(""), first - 10, y, { align: "right" });
    drawStrip(painter, look.states[at]!, states, first, y - 8, wide, -1);
    if (shown > 1) painter.text(look.scores ? look.scores[at]!.toFixed(3) : "–", score, y, { align: "right", mono: true, size: 12 });
    if (shown < 3) return;
    painter.rect(weight - 60, y - 8, 60 * look.weights[at]!, 16, accent, 0.28);
    painter.text(look.weights[at]!.toFixed(3), weight, y, { align: "right", mono: true, size: 12 });
    drawStrip(painter, look.weighted[at]!, values, second, y - 8, wide, d);
    painter.text(look.weighted[at]![d]!.toFixed(4), last, y, { align: "right", mono: true, size: 12 });
  });
  if (shown < 4) return;
  const y = top + (payload.source.tokens.length + 1) * LINE;
  painter.text("4. sum: the context vector", weight, y, { align: "right", bold: true });
  drawStrip(painter, look.context, values, second, y - 8, wide, d);
  painter.text(look.context[d]!.toFixed(4), last, y, { align: "right", mono: true, size: 12 });
}

/** Every step of the translation that is shown, and in it every token of the source with its score and weight. */
export function table(choice: Choice | null): Table {
  if (!choice) return { headers: ["step"], rows: [] };
  const { payload, told, layer, heads, mean } = choice;
  const steps = told.steps.map((one, number) => [number + 1, one.token, rounded(one.probability)] as const);
  if (!told.attention) return { headers: ["step", "said", "probability"], rows: steps };
  const weights = weightsOf(payload, told, layer, heads);
  const size = payload.source.tokens.length;
  return {
    headers: ["step", "said", "probability", "layer", "head", "source", "token", "score", "weight"],
    rows: steps.flatMap((step, number) => {
      const scores = mean ? null : scoresOf(payload, told, number, layer, heads[0]!);
      return payload.source.tokens.map((token, at) => [
        ...step,
        layer,
        mean ? "mean" : heads[0]!,
        at,
        token,
        scores ? rounded(scores[at]!) : "",
        rounded(weights[number * size + at]!),
      ]);
    }),
  };
}

function rounded(value: number): number {
  return Number(value.toFixed(6));
}
