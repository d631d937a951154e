// What is shown as a file: the figure with the chosen tensor beside it, or the positional encodings; and their numbers.
import type { Route } from "../../route";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { by, choiceOf, figures, matrixOf, seen, type FigurePayload, type Matrix } from "./payload";
import { learned, sinusoids, wanted } from "./positions";
import { drawFigure, drawHeat, heatOf, largest } from "./draw";

const [MARGIN, TOP, ROOM] = [16, 44, 520];

export function drawing(payload: FigurePayload, here: Route): Drawing {
  const choice = choiceOf(payload, here);
  if (choice.mode === "positions") return encodings(payload, here);
  const { layout } = payload;
  const matrix = choice.tensor.words ? null : matrixOf(payload, choice.tensor, choice.head);
  const heat = matrix && heatOf(matrix, ROOM);
  const beside = MARGIN + layout.width + 24;
  const lines = choice.box.code.split("\n");
  return {
    width: beside + Math.max(ROOM, ...lines.map((line) => line.length * 7.3)) + MARGIN,
    height: TOP + Math.max(layout.height, 40 + lines.length * 17 + (heat?.height ?? 22 * (choice.tensor.words?.length ?? 0))) + MARGIN,
    draw(painter) {
      const muted = colors.get().muted;
      painter.text(`${payload.model.name}: ${payload.text}${payload.without.length ? ` (without ${payload.without.join(", ")})` : ""}`, MARGIN, 20, { size: 14, bold: true });
      drawFigure(painter, payload, 1, choice.name, MARGIN, TOP);
      const where = choice.box.steps.length > 1 ? `, layer ${choice.layer}` : "";
      const head = choice.tensor.shape.length === 3 ? `, head ${choice.head}` : "";
      painter.text(`${choice.box.title}${where}: ${choice.called} (${by(choice.tensor.shape)})${head}`, beside, TOP, { size: 13, bold: true });
      lines.forEach((line, number) => painter.text(line, beside, TOP + 20 + 17 * number, { size: 12, mono: true, color: muted }));
      const y = TOP + 28 + 17 * lines.length;
      if (matrix && heat) drawHeat(painter, matrix, heat, largest(matrix.values), beside, y);
      choice.tensor.words?.forEach((best, row) => {
        const tokens = (choice.tensor.rows && payload.tokens[choice.tensor.rows]) || [];
        const said = best.slice(0, 4).map(([word, value]) => `${seen(word)} ${figures(value)}`);
        painter.text(`${seen(tokens[row] ?? "")}: ${said.join("  ")}`, beside, y + 8 + 20 * row, { size: 12, mono: true });
      });
    },
  };
}

function encodings(payload: FigurePayload, here: Route): Drawing {
  const asked = wanted(here);
  const own = learned(payload);
  const parts: [string, Matrix, number][] = [[`sinusoids, ${asked.count} × ${asked.width}, ${asked.layout}`, sinusoids(asked), 1]];
  if (own) parts.push([`learned by ${payload.model.name}, ${own.rows.length} × ${own.across}`, own, largest(own.values)]);
  const heats = parts.map(([, matrix]) => heatOf(matrix, 760, 9));
  return {
    width: 2 * MARGIN + Math.max(420, ...heats.map((heat) => heat.width)),
    height: MARGIN + heats.reduce((sum, heat) => sum + heat.height + 40, 0),
    draw(painter) {
      let y = MARGIN;
      parts.forEach(([name, matrix, most], number) => {
        painter.text(name, MARGIN, y + 6, { size: 14, bold: true });
        drawHeat(painter, matrix, heats[number]!, most, MARGIN, y + 22);
        y += heats[number]!.height + 40;
      });
    },
  };
}

/** The tensor that is shown, number by number; of the vocabulary's scores the words that are told. */
export function table(payload: FigurePayload, here: Route): Table {
  const choice = choiceOf(payload, here);
  if (choice.mode === "positions") {
    const { values, across } = sinusoids(wanted(here));
    return { headers: ["position", "dimension", "value"], rows: Array.from(values, (value, at) => [Math.floor(at / across), at % across, Number(value.toPrecision(7))]) };
  }
  const { tensor, name, called, layer } = choice;
  if (tensor.words) {
    const tokens = (tensor.rows && payload.tokens[tensor.rows]) || [];
    return {
      headers: ["box", "tensor", "row", "token", "rank", "word", "value"],
      rows: tensor.words.flatMap((best, row) => best.map(([word, value], rank) => [name, called, row, tokens[row] ?? "", rank + 1, word, value])),
    };
  }
  const heads = tensor.shape.length === 3 ? tensor.shape[0]! : 1;
  const where = choice.box.steps.length > 1 ? layer : "";
  return {
    headers: ["box", "layer", "tensor", "head", "row", "row_token", "column", "column_token", "value"],
    rows: Array.from({ length: heads }, (_, head) => {
      const { values, across, rows, columns } = matrixOf(payload, tensor, head);
      return Array.from(values, (value, at) => {
        const [row, column] = [Math.floor(at / across), at % across];
        return [name, where, called, heads > 1 ? head : "", row, rows[row]!, column, columns?.[column] ?? "", Number.isFinite(value) ? Number(value.toPrecision(5)) : String(value)];
      });
    }).flat(),
  };
}
