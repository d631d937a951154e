// Exports of Figure 1: the figure with the selected tensor, or the positional encodings; and their numbers.
import { largestMagnitude, range, truncate } from "../../format";
import { wrap } from "../../painter";
import type { Route } from "../../route";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { drawFigure, drawSignedMap, encodingOptions, learnedEncodings, signedMapLayout, sinusoids } from "./draw";
import { layoutOf } from "./layout";
import { formatChange, formatLoss, nameOf } from "./part_removal";
import { type FigurePayload, formatNumber, formatShape, type Matrix, matrixOf, rowTokens, selectionOf, visibleToken } from "./payload";

const [MARGIN, TOP, ROOM, LINE] = [16, 44, 520, 17];

export function drawing(payload: FigurePayload, route: Route): Drawing {
  const { mode, box, tensor, tensorName, head, layer, name } = selectionOf(payload, route);
  if (mode === "positions") return encodingsDrawing(payload, route);
  const { model, text, without } = payload;
  const layout = layoutOf(payload);
  const matrix = tensor.words ? null : matrixOf(payload, tensor, head);
  const map = matrix && signedMapLayout(matrix, ROOM);
  const left = MARGIN + layout.width + 24;
  const lines = box.code.split("\n");
  const below = TOP + 60 + lines.length * LINE + (map?.height ?? 20 * (tensor.words?.length ?? 0));
  const removal = removalLines(payload);
  return {
    width: left + Math.max(ROOM, ...[...lines, ...removal].map((line) => line.length * 7.3)) + MARGIN,
    height: Math.max(TOP + layout.height, below + removal.length * LINE) + MARGIN,
    draw(painter) {
      painter.text(`${model.name}: ${truncate(text, 90)}${without.length ? ` (without ${without.join(", ")})` : ""}`, MARGIN, 20, { size: 14, bold: true });
      drawFigure(painter, payload, 1, name, MARGIN, TOP);
      const where = `${box.steps.length > 1 ? `, layer ${layer}` : ""}: ${tensorName} (${formatShape(tensor.shape)})${tensor.shape.length === 3 ? `, head ${head}` : ""}`;
      painter.text(`${box.title}${where}`, left, TOP, { size: 13, bold: true });
      lines.forEach((line, number) => painter.text(line, left, TOP + 20 + LINE * number, { size: 12, mono: true, color: colors.get().muted }));
      const y = TOP + 28 + LINE * lines.length;
      if (matrix && map) drawSignedMap(painter, matrix, map, largestMagnitude(matrix.values), left, y);
      tensor.words?.forEach((best, row) => {
        const words = best.slice(0, 4).map(([word, value]) => `${visibleToken(word)} ${formatNumber(value)}`);
        painter.text(`${visibleToken(rowTokens(payload, tensor)?.[row] ?? "")}: ${words.join("  ")}`, left, y + 8 + 20 * row, { size: 12, mono: true });
      });
      removal.forEach((line, number) => painter.text(line, left, below + LINE * number, number ? { size: 12, mono: true } : { size: 13, bold: true }));
    },
  };
}

/** The effect of removing each part: the loss of the text, and the output. */
function removalLines({ ablation: { outcomes, remarks } }: FigurePayload): string[] {
  const effects = outcomes.flatMap((one) => [
    `${nameOf(one)}: loss ${formatLoss(one.loss)}${one === outcomes[0] ? "" : ` (${formatChange(one.loss, outcomes[0]!.loss)})`}`,
    `  output: ${truncate(one.output.replace(/\s+/g, " "), 60)}`,
  ]);
  return ["Effect of removing each part", ...effects, ...remarks.flatMap((remark) => wrap(remark, 72))];
}

function encodingsDrawing(payload: FigurePayload, route: Route): Drawing {
  const options = encodingOptions(route);
  const learned = learnedEncodings(payload);
  const parts: [string, Matrix, number][] = [[`sinusoids, ${options.count} × ${options.width}, ${options.layout}`, sinusoids(options), 1]];
  if (learned) parts.push([`learned by ${payload.model.name}, ${learned.rows.length} × ${learned.width}`, learned, largestMagnitude(learned.values)]);
  const maps = parts.map(([, matrix]) => signedMapLayout(matrix, 760, 9));
  return {
    width: 2 * MARGIN + Math.max(420, ...maps.map((map) => map.width)),
    height: MARGIN + maps.reduce((sum, map) => sum + map.height + 40, 0),
    draw(painter) {
      let y = MARGIN;
      parts.forEach(([name, matrix, largest], number) => {
        painter.text(name, MARGIN, y + 6, { size: 14, bold: true });
        drawSignedMap(painter, matrix, maps[number]!, largest, MARGIN, y + 22);
        y += maps[number]!.height + 40;
      });
    },
  };
}

/** The numbers of the selected tensor; of scores over the vocabulary, the most probable words. */
export function table(payload: FigurePayload, route: Route): Table {
  const { mode, tensor, name, tensorName, layer, box } = selectionOf(payload, route);
  if (mode === "positions") {
    const { values, width } = sinusoids(encodingOptions(route));
    return { headers: ["position", "dimension", "value"], rows: Array.from(values, (value, at) => [Math.floor(at / width), at % width, Number(value.toPrecision(7))]) };
  }
  if (tensor.words) {
    const tokens = rowTokens(payload, tensor) ?? [];
    return {
      headers: ["box", "tensor", "row", "token", "rank", "word", "value"],
      rows: tensor.words.flatMap((best, row) => best.map(([word, value], rank) => [name, tensorName, row, tokens[row] ?? "", rank + 1, word, value])),
    };
  }
  const heads = tensor.shape.length === 3 ? tensor.shape[0]! : 1;
  return {
    headers: ["box", "layer", "tensor", "head", "row", "row_token", "column", "column_token", "value"],
    rows: range(heads).flatMap((head) => {
      const { values, width, rows, columns } = matrixOf(payload, tensor, head);
      return Array.from(values, (value, at) => {
        const [row, column] = [Math.floor(at / width), at % width];
        const number = Number.isFinite(value) ? Number(value.toPrecision(5)) : String(value);
        return [name, box.steps.length > 1 ? layer : "", tensorName, heads > 1 ? head : "", row, rows[row]!, column, columns?.[column] ?? "", number];
      });
    }),
  };
}
