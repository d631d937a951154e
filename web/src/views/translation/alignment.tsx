// The alignment matrix: the translation down, the source across; soft as a heat map, hard as a grid with one cell per row.
import { useMemo } from "preact/hooks";
import { ButtonGroup, Token } from "../../components";
import { drawLabels, HeatMap, squareLayout, type MapLayout } from "../../heat_map";
import { outline, type Painter } from "../../painter";
import { setParameters } from "../../route";
import { colors } from "../../theme";
import { alignmentOf, hardAlignment, oneToMany, type AlignmentData } from "./alignment_data";
import { describeHeads, type Selection } from "./payload";
import { goToStep } from "./time_steps";

const MAX_CELL = 44;
const WRITTEN = 28; // pixels; smaller cells have no numbers

export const alignmentLayout = ({ rows, columns }: AlignmentData, room: number) => squareLayout(rows, columns, room, MAX_CELL);

export function drawAlignment(painter: Painter, data: AlignmentData, hard: boolean, layout: MapLayout, x = 0, y = 0): void {
  const { rows, columns, weights, current } = data;
  const { accent, other, ink, rule, page } = colors.get();
  const cell = layout.cell[0];
  const [left, top, right, bottom] = [x + layout.left, y + layout.top, x + layout.width, y + layout.height];
  drawLabels(painter, rows, columns, layout, x, y, current);
  if (hard) {
    hardAlignment(data).forEach((column, row) => columns.length && painter.rect(left + column * cell + 1, top + row * cell + 1, cell - 2, cell - 2, accent));
    for (let i = 1; i < rows.length; i++) painter.line(left, top + i * cell, right, top + i * cell, rule);
    for (let j = 1; j < columns.length; j++) painter.line(left + j * cell, top, left + j * cell, bottom, rule);
  } else if (weights.length) {
    painter.matrix(weights, columns.length, left, top, right - left, bottom - top, accent);
    weights.forEach((weight, at) => {
      const [row, column] = [Math.floor(at / columns.length), at % columns.length];
      const text = weight.toFixed(2).replace(/^0/, "");
      if (cell < WRITTEN || text === ".00") return;
      painter.text(text, left + (column + 0.5) * cell, top + (row + 0.5) * cell, { align: "center", size: 11, color: weight > 0.3 ? page : ink });
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
        From {describeHeads(selection)}. {level === "word" ? "Words are separated by spaces; the weight on the end of the source is left out." : "Subwords, with the end tokens."}
      </p>
      <div class="choices">
        <ButtonGroup title="Alignment" options={["soft", "hard"]} value={hard ? "hard" : "soft"} onSelect={(value) => setParameters({ alignment: value === "hard" ? value : "" })} />
        <ButtonGroup title="Tokens" options={["words", "subwords"]} value={level === "word" ? "words" : "subwords"} onSelect={(value) => setParameters({ level: value === "subwords" ? "piece" : "" })} />
      </div>
      {rows.length && columns.length ? (
        <HeatMap
          size={[rows.length, columns.length]}
          layout={(room) => alignmentLayout(data, room)}
          inputs={[data, hard]}
          label={`${hard ? "Hard" : "Soft"} alignment of ${rows.length} target by ${columns.length} source ${level === "word" ? "words" : "subwords"}`}
          draw={(painter, layout) => drawAlignment(painter, data, hard, layout)}
          onPress={([row]) => goToStep(Math.max(0, data.steps[row]!), selection)}
          describe={(cell) =>
            cell ? (
              <>
                <Token text={rows[cell[0]]} /> attends to <Token text={columns[cell[1]]} />: {weights[cell[0] * columns.length + cell[1]]!.toFixed(3)}
              </>
            ) : (
              "Down: the translation. Across: the source. Point at a cell for its weight, press it to go to its time step."
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
