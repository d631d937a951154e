// Exports of the translation view: a picture of the current step with the alignment, and a table of all steps.
import { decimal, fixedPercent, largestMagnitude, round, truncate, visible } from "../../format";
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import { drawVector } from "../../vector_strip";
import type { Drawing, Table } from "../../view";
import { alignmentLayout, alignmentOf, drawAlignment } from "./alignment";
import { describeHeads, headVector, meanWeights, type Selection, type StepAttention } from "./payload";

const WIDTH = 860;
const MARGIN = 20;
const LINE = 26;
const TOP = 96;
const MAX_TITLE = 84; // characters

export function drawing(selection: Selection | null): Drawing {
  if (!selection) return { width: 420, height: 60, draw: (painter) => painter.text("No translation.", MARGIN, 30) };
  const { payload, hypothesis, attention, step, hard, level, model } = selection;
  const data = attention && alignmentOf(selection);
  const layout = data && data.rows.length && data.columns.length ? alignmentLayout(data, Math.min(WIDTH - 2 * MARGIN, 560)) : null;
  const bottom = TOP + (attention ? (payload.source.tokens.length + 3) * LINE : 0);
  return {
    width: WIDTH,
    height: bottom + (layout ? layout.height + 40 : 0) + MARGIN,
    draw(painter) {
      const { token, probability } = hypothesis.steps[step]!;
      painter.text(truncate(`${payload.text}  →  ${hypothesis.text}`.replace(/\s/g, " "), MAX_TITLE), MARGIN, 24, { size: 16, bold: true });
      painter.text(`Time step ${step + 1} of ${hypothesis.steps.length}: ${visible(token)} ${fixedPercent(probability, 1)}`, MARGIN, 50);
      const about = attention ? `Encoder-decoder attention: ${describeHeads(selection)}` : "No encoder-decoder attention";
      painter.text(`${model.name}. ${about}`, MARGIN, 72, { size: 12, color: colors.get().muted });
      if (attention) drawSteps(painter, selection, attention);
      if (layout && data) {
        painter.text(`${hard ? "Hard" : "Soft"} alignment of ${level === "word" ? "words" : "subwords"}`, MARGIN, bottom + 12, { bold: true });
        drawAlignment(painter, data, hard, layout, MARGIN, bottom + 30);
      }
    },
  };
}

function drawSteps(painter: Painter, { payload, substeps, dimension }: Selection, attention: StepAttention): void {
  const { muted, accent } = colors.get();
  const [first, score, weight, second, last] = [MARGIN + 110, MARGIN + 370, MARGIN + 460, MARGIN + 480, WIDTH - MARGIN];
  const strip = 180;
  const header = { size: 11, color: muted };
  const number = (text: string, x: number, y: number) => painter.text(text, x, y, { align: "right", mono: true, size: 12 });
  painter.text("1. state", first, TOP, header);
  if (substeps > 1) painter.text("2. score", score, TOP, { ...header, align: "right" });
  if (substeps > 2) {
    painter.text("3. softmax", weight, TOP, { ...header, align: "right" });
    painter.text("weight × value", second, TOP, header);
    painter.text(`dimension ${dimension}`, last, TOP, { ...header, align: "right" });
  }
  const [largestState, largestValue] = [largestMagnitude(...attention.states), largestMagnitude(...attention.values)];
  payload.source.tokens.forEach((token, at) => {
    const y = TOP + (at + 1) * LINE;
    painter.text(truncate(visible(token), 14), first - 10, y, { align: "right" });
    drawVector(painter, attention.states[at]!, largestState, first, y - 8, strip);
    if (substeps > 1) number(attention.scores ? decimal(attention.scores[at]!) : "–", score, y);
    if (substeps < 3) return;
    painter.rect(weight - 60, y - 8, 60 * attention.weights[at]!, 16, accent, 0.28);
    number(decimal(attention.weights[at]!), weight, y);
    drawVector(painter, attention.weighted[at]!, largestValue, second, y - 8, strip, dimension);
    number(decimal(attention.weighted[at]![dimension]!, 4), last, y);
  });
  if (substeps < 4) return;
  const y = TOP + (payload.source.tokens.length + 1) * LINE;
  painter.text("4. sum: the context vector", weight, y, { align: "right", bold: true });
  drawVector(painter, attention.context, largestValue, second, y - 8, strip, dimension);
  number(decimal(attention.context[dimension]!, 4), last, y);
}

/** Every step, and in it every source token with its score and weight. */
export function table(selection: Selection | null): Table {
  if (!selection) return { headers: ["step"], rows: [] };
  const { payload, hypothesis, layer, heads, mean } = selection;
  const steps = hypothesis.steps.map((one, number) => [number + 1, one.token, round(one.probability, 6)] as const);
  if (!hypothesis.attention) return { headers: ["step", "target_token", "probability"], rows: steps };
  const weights = meanWeights(selection);
  const size = payload.source.tokens.length;
  return {
    headers: ["step", "target_token", "probability", "layer", "head", "source", "source_token", "score", "weight"],
    rows: steps.flatMap((step, number) => {
      const scores = mean ? null : headVector(payload, hypothesis, "scores", number, layer, heads[0]!);
      const head = mean ? "mean" : heads[0]!;
      return payload.source.tokens.map((token, at) => [...step, layer, head, at, token, scores ? round(scores[at]!, 6) : "", round(weights[number * size + at]!, 6)]);
    }),
  };
}
