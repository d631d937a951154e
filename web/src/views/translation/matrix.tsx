// The alignment matrix: the translation downwards, the source across; soft as a heat map, hard as a grid with one cell a
// row. Knows what is aligned and pixels; the page and the picture files are drawn by the same function.
import { useMemo, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { setParameters } from "../../route";
import { useWidth } from "../../canvas";
import { canvasPainter, type Painter } from "../../painter";
import { colors } from "../../theme";
import { alignedOf, hardOf, manyOf, pharaoh, type Aligned } from "./alignment";
import { headsOf, type Choice } from "./payload";
import { go } from "./time";

const LARGEST = 44;
const LEGIBLE = 10; // pixels of a cell from which its name can be read
const WRITTEN = 28; // pixels from which its number fits into it
const LETTER = 7.2;

export interface Layout {
  readonly cell: number;
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export function layoutOf({ rows, columns }: Aligned, room: number): Layout {
  const longest = (names: readonly string[]) => Math.min(110, 12 + LETTER * Math.max(0, ...names.map((name) => [...name].length)));
  const named = (room - longest(rows)) / columns.length >= LEGIBLE;
  const [left, top] = named ? [longest(rows), longest(columns)] : [0, 0];
  const cell = Math.min(LARGEST, (room - left) / Math.max(1, columns.length));
  return { cell, left, top, width: left + cell * columns.length, height: top + cell * rows.length };
}

export function drawMatrix(painter: Painter, aligned: Aligned, hard: boolean, layout: Layout, x = 0, y = 0): void {
  const { rows, columns, weights, current } = aligned;
  const { accent, other, ink, muted, rule, page } = colors.get();
  const { cell, left, top } = layout;
  const size = Math.min(13, cell - 1);
  const cut = (name: string) => ([...name].length > 14 ? `${[...name].slice(0, 13).join("")}…` : name);
  const [x1, y1, x2, y2] = [x + left, y + top, x + layout.width, y + layout.height];
  if (left) {
    rows.forEach((name, i) => painter.text(cut(name), x1 - 6, y1 + (i + 0.5) * cell, { align: "right", size, color: i === current ? ink : muted, bold: i === current }));
    columns.forEach((name, j) => painter.text(cut(name), x1 + (j + 0.5) * cell, y1 - 6, { turned: true, size, color: muted }));
  }
  if (hard) hardOf(aligned).forEach((column, row) => columns.length && painter.rect(x1 + column * cell + 1, y1 + row * cell + 1, cell - 2, cell - 2, accent));
  else if (weights.length) painter.matrix(weights, columns.length, x1, y1, x2 - x1, y2 - y1, accent);
  if (!hard && cell >= WRITTEN)
    weights.forEach((weight, at) => {
      const [row, column] = [Math.floor(at / columns.length), at % columns.length];
      const text = weight.toFixed(2).replace(/^0/, "");
      if (text !== ".00") painter.text(text, x1 + (column + 0.5) * cell, y1 + (row + 0.5) * cell, { align: "center", size: 11, color: weight > 0.3 ? page : ink });
    });
  const lines: number[] = [];
  for (let i = 0; i <= rows.length; i++) if (hard || i === 0 || i === rows.length) lines.push(x1, y1 + i * cell, x2, y1 + i * cell);
  for (let j = 0; j <= columns.length; j++) if (hard || j === 0 || j === columns.length) lines.push(x1 + j * cell, y1, x1 + j * cell, y2);
  painter.lines(lines, rule, 1, false, 1);
  if (current >= 0) {
    const [upper, lower] = [y1 + current * cell, y1 + (current + 1) * cell];
    painter.lines([x1, upper, x2, upper, x1, lower, x2, lower, x1, upper, x1, lower, x2, upper, x2, lower], other, 1, false, 2);
  }
}

export function Matrix({ choice }: { choice: Choice }) {
  const aligned = useMemo(() => alignedOf(choice), [choice]);
  const { level, hard } = choice;
  return (
    <section class="alignment" aria-label="Alignment">
      <h2>Alignment</h2>
      <p class="muted">
        Of {headsOf(choice)}. {level === "word" ? "A word is what stands between spaces; what fell on the source’s end is left out." : "Pieces, with the end of both."}
      </p>
      <div class="choices">
        <Pair title="Alignment" values={["soft", "hard"]} value={hard ? "hard" : "soft"} pick={(value) => setParameters({ alignment: value === "hard" ? value : "" })} />
        <Pair title="By" values={["words", "pieces"]} value={level === "word" ? "words" : "pieces"} pick={(value) => setParameters({ level: value === "pieces" ? "piece" : "" })} />
      </div>
      {aligned.rows.length && aligned.columns.length ? <Map choice={choice} aligned={aligned} /> : <p>Nothing was said, so there is nothing to align.</p>}
      {hard && aligned.rows.length > 0 && <Hard aligned={aligned} />}
    </section>
  );
}

function Map({ choice, aligned }: { choice: Choice; aligned: Aligned }) {
  const { hard } = choice;
  const [element, width] = useWidth<HTMLDivElement>();
  const [at, point] = useState<readonly [number, number] | null>(null);
  const layout = layoutOf(aligned, Math.max(120, width - 2));
  const { rows, columns, weights } = aligned;
  const find = (event: PointerEvent | MouseEvent): readonly [number, number] | null => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - layout.top) / layout.cell);
    const column = Math.floor((event.clientX - box.left - layout.left) / layout.cell);
    return row >= 0 && column >= 0 && row < rows.length && column < columns.length ? [row, column] : null;
  };
  const shown = at && at[0] < rows.length && at[1] < columns.length ? at : null;
  return (
    <div ref={element} class="heat">
      <Canvas
        width={Math.ceil(layout.width) + 2}
        height={Math.ceil(layout.height) + 2}
        inputs={[aligned, hard, layout.cell, layout.left]}
        label={`${hard ? "Hard" : "Soft"} alignment of ${rows.length} target by ${columns.length} source ${choice.level}s`}
        draw={(context) => drawMatrix(canvasPainter(context, colors.get().ink), aligned, hard, layout)}
        canvas={{
          onPointerMove: (event: PointerEvent) => point(find(event)),
          onPointerLeave: () => point(null),
          onClick: (event: MouseEvent) => {
            const found = find(event);
            if (found) go(Math.max(0, aligned.steps[found[0]]!), choice);
          },
        }}
      />
      <p class="note muted">
        {shown ? (
          <>
            <bdi class="token">{rows[shown[0]]}</bdi> looks at <bdi class="token">{columns[shown[1]]}</bdi>: {weights[shown[0] * columns.length + shown[1]]!.toFixed(3)}
          </>
        ) : (
          "Down: the translation. Across: the source. Point at a cell for its number, press it to go to its time step."
        )}
      </p>
    </div>
  );
}

function Hard({ aligned }: { aligned: Aligned }) {
  const many = manyOf(aligned);
  const { rows, columns } = aligned;
  return (
    <>
      <h3>One to many</h3>
      {many.length ? (
        <ul class="many">
          {many.map(({ column, rows: several }) => (
            <li key={column}>
              <bdi class="token">{columns[column]}</bdi> → {several.map((row) => rows[row]).join(", ")}
            </li>
          ))}
        </ul>
      ) : (
        <p>No word of the source is looked at most by several of the translation.</p>
      )}
      <h3>Pharaoh’s format: source-target, both from 0</h3>
      <p class="pharaoh token">{pharaoh(aligned)}</p>
    </>
  );
}

interface PairProps {
  readonly title: string;
  readonly values: readonly string[];
  readonly value: string;
  pick(value: string): void;
}

function Pair({ title, values, value, pick }: PairProps) {
  return (
    <fieldset>
      <legend>{title}</legend>
      <span class="group">
        {values.map((one) => (
          <button key={one} type="button" aria-pressed={one === value} onClick={() => pick(one)}>
            {one}
          </button>
        ))}
      </span>
    </fieldset>
  );
}
