// The alignment matrix: the translation down, the source across; soft as a heat map, hard as a grid with one cell per
// row.
import { useMemo } from "preact/hooks";
import { ButtonGroup, Token } from "../../components";
import { visible } from "../../format";
import { drawLabels, HeatMap, type MapLayout, squareLayout } from "../../heat_map";
import { outline, type Painter } from "../../painter";
import { setParameters } from "../../route";
import { colors } from "../../theme";
import { goToStep } from "./attention_steps";
import { describeHeads, meanWeights, type Selection } from "./payload";

const MAX_CELL = 44;
const WRITTEN = 28; // pixels; smaller cells have no numbers

export const alignmentLayout = ({ rows, columns }: AlignmentData, room: number) =>
  squareLayout(rows, columns, room, MAX_CELL);

export function drawAlignment(
  painter: Painter,
  data: AlignmentData,
  hard: boolean,
  layout: MapLayout,
  x = 0,
  y = 0,
): void {
  const { rows, columns, weights, current } = data;
  const { accent, other, ink, rule, page } = colors.get();
  const cell = layout.cell[0];
  const [left, top, right, bottom] = [x + layout.left, y + layout.top, x + layout.width, y + layout.height];
  drawLabels(painter, rows, columns, layout, x, y, current);
  if (hard) {
    hardAlignment(data).forEach(
      (column, row) =>
        columns.length && painter.rect(left + column * cell + 1, top + row * cell + 1, cell - 2, cell - 2, accent),
    );
    for (let i = 1; i < rows.length; i++) painter.line(left, top + i * cell, right, top + i * cell, rule);
    for (let j = 1; j < columns.length; j++) painter.line(left + j * cell, top, left + j * cell, bottom, rule);
  } else if (weights.length) {
    painter.matrix(weights, columns.length, left, top, right - left, bottom - top, accent);
    weights.forEach((weight, at) => {
      const [row, column] = [Math.floor(at / columns.length), at % columns.length];
      const text = weight.toFixed(2).replace(/^0/, "");
      if (cell < WRITTEN || text === ".00") return;
      painter.text(text, left + (column + 0.5) * cell, top + (row + 0.5) * cell, {
        align: "center",
        size: 11,
        color: weight > 0.3 ? page : ink,
      });
    });
  }
  outline(painter, left, top, right - left, bottom - top, rule);
  if (current >= 0) outline(painter, left, top + current * cell, right - left, cell, other, 1, 2);
}

export function Alignment({ selection }: { selection: Selection }) {
  const data = useMemo(() => alignmentOf(selection), [selection]);
  const { level, hard } = selection;
  const { rows, columns, weights } = data;
  return (
    <section class="alignment" aria-label="Alignment">
      <h2>Alignment</h2>
      <p class="muted">
        From {describeHeads(selection)}.{" "}
        {level === "word"
          ? "Words are separated by spaces; the weight on the end of the source is left out."
          : "Subwords, with the end tokens."}
      </p>
      <div class="choices">
        <ButtonGroup
          title="Alignment"
          options={["soft", "hard"]}
          value={hard ? "hard" : "soft"}
          onSelect={(value) => setParameters({ alignment: value === "hard" ? value : "" })}
        />
        <ButtonGroup
          title="Tokens"
          options={["words", "subwords"]}
          value={level === "word" ? "words" : "subwords"}
          onSelect={(value) => setParameters({ level: value === "subwords" ? "piece" : "" })}
        />
      </div>
      {rows.length && columns.length ? (
        <HeatMap
          size={[rows.length, columns.length]}
          layout={(room) => alignmentLayout(data, room)}
          inputs={[data, hard]}
          label={
            `${hard ? "Hard" : "Soft"} alignment of ${rows.length} target by ${columns.length} source ` +
            `${level === "word" ? "words" : "subwords"}`
          }
          draw={(painter, layout) => drawAlignment(painter, data, hard, layout)}
          onPress={([row]) => goToStep(Math.max(0, data.steps[row]!), selection)}
          describe={(cell) =>
            cell ? (
              <>
                <Token text={rows[cell[0]]} /> attends to <Token text={columns[cell[1]]} />:{" "}
                {weights[cell[0] * columns.length + cell[1]]!.toFixed(3)}
              </>
            ) : (
              "Down: the translation. Across: the source. Point at a cell for its weight, press it to go to its " +
              "time step."
            )
          }
        />
      ) : (
        <p>The translation is empty: there is nothing to align.</p>
      )}
      {hard && rows.length > 0 && <HardAlignment data={data} />}
    </section>
  );
}

function HardAlignment({ data }: { data: AlignmentData }) {
  const many = oneToMany(data);
  return (
    <>
      <h3>One to many</h3>
      {many.length ? (
        <ul class="many">
          {many.map(({ column, rows }) => (
            <li key={column}>
              <Token text={data.columns[column]} /> → {rows.map((row) => data.rows[row]).join(", ")}
            </li>
          ))}
        </ul>
      ) : (
        <p>Each source word is aligned to at most one word of the translation.</p>
      )}
      <h3>Pharaoh format: source-target, both from 0</h3>
      <p class="pharaoh token">
        {hardAlignment(data)
          .map((column, row) => `${column}-${row}`)
          .join(" ")}
      </p>
    </>
  );
}

export interface AlignmentData {
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  /** [rows, columns] in row-major order. */
  readonly weights: Float32Array;
  /** The row of the current step, or -1. */
  readonly current: number;
  /** The first step of each row. */
  readonly steps: readonly number[];
}

export function alignmentOf(selection: Selection): AlignmentData {
  const { payload, hypothesis, step, level } = selection;
  const pieceWeights = meanWeights(selection);
  if (level === "piece") {
    const steps = hypothesis.steps.map((_, number) => number);
    return {
      rows: hypothesis.pieces.tokens.map(visible),
      columns: payload.source.tokens.map(visible),
      weights: pieceWeights,
      current: step,
      steps,
    };
  }
  const [rows, columns] = [hypothesis.pieces.words, payload.source.words];
  const [size, width] = [payload.source.tokens.length, columns.length];
  const weights = new Float32Array(rows.length * width);
  hypothesis.pieces.word_indices.forEach((row, piece) => {
    if (row < rows.length)
      payload.source.word_indices.forEach(
        (column, at) => (weights[row * width + column]! += pieceWeights[piece * size + at]!),
      );
  });
  for (let row = 0; row < rows.length; row++) {
    const part = weights.subarray(row * width, (row + 1) * width);
    const total = part.reduce((a, b) => a + b, 0);
    part.forEach((value, at) => (part[at] = value / Math.max(total, 1e-12)));
  }
  return {
    rows,
    columns,
    weights,
    current: hypothesis.pieces.word_indices[step] ?? -1,
    steps: rows.map((_, row) => hypothesis.pieces.word_indices.indexOf(row)),
  };
}

/** The column with the largest weight in each row. */
export function hardAlignment({ rows, columns, weights }: AlignmentData): number[] {
  return rows.map((_, row) => {
    let best = 0;
    for (let column = 1; column < columns.length; column++)
      if (weights[row * columns.length + column]! > weights[row * columns.length + best]!) best = column;
    return best;
  });
}

/** Source words that several target words are aligned to. */
export function oneToMany(data: AlignmentData): { readonly column: number; readonly rows: readonly number[] }[] {
  const hard = hardAlignment(data);
  return data.columns
    .map((_, column) => ({ column, rows: hard.flatMap((best, row) => (best === column ? [row] : [])) }))
    .filter(({ rows }) => rows.length > 1);
}
