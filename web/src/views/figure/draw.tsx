// Drawings of the diagram, of signed heat maps and of positional encodings; the effect of removing parts; and the
// exports of the view.
import { useMemo } from "preact/hooks";
import { inStudio } from "../../api";
import { bytes, halves } from "../../binary";
import { ButtonGroup, DataTable, Notes } from "../../components";
import { largestMagnitude, range, truncate } from "../../format";
import { HeatMap, type MapLayout } from "../../heat_map";
import { outline, type Painter, signedMatrix, wrap } from "../../painter";
import { currentRoute, type Route, setParameters } from "../../route";
import { colors, series } from "../../theme";
import type { AblationOutcome, ComponentAblation, TokenPrediction } from "../../types";
import type { Drawing, Table } from "../../view";
import { type Connector, layoutOf } from "./layout";
import {
  type FigurePayload,
  formatNumber,
  formatShape,
  type Matrix,
  matrixOf,
  rowTokens,
  selectionOf,
  visibleToken,
} from "./payload";
import { streamDrawing, streamSelection, streamTable } from "./stream";

const ARROW = 4;
// Colors of the kinds of boxes (others are gray), and opacities of the background of a stack, a box, and a removed box.
const KINDS: Readonly<Record<string, number>> = { attention: 4, ffn: 5, embedding: 3, linear: 0, softmax: 2 };
const [FRAME, BOX, REMOVED] = [0.07, 0.28, 0.06];

/** The figure at a scale, with its upper left corner at x and y; the selected box has a thick border. */
export function drawFigure(
  painter: Painter,
  payload: FigurePayload,
  scale: number,
  selected: string,
  x = 0,
  y = 0,
): void {
  const layout = layoutOf(payload);
  const theme = colors.get();
  const scaled = (box: { x: number; y: number; width: number; height: number }) =>
    [x + box.x * scale, y + box.y * scale, box.width * scale, box.height * scale] as const;
  for (const frame of layout.frames) {
    painter.rect(...scaled(frame), theme.muted, FRAME);
    outline(painter, ...scaled(frame), theme.muted);
  }
  for (const line of layout.lines) drawLine(painter, line, scale, x, y);
  for (const shape of layout.shapes) {
    const [left, top, width, height] = scaled(shape);
    const removed = shape.kind === "positions" && payload.without.includes("positions");
    const kind = KINDS[shape.kind];
    painter.rect(left, top, width, height, theme.page);
    painter.rect(left, top, width, height, kind === undefined ? theme.muted : series(kind), removed ? REMOVED : BOX);
    outline(
      painter,
      left,
      top,
      width,
      height,
      shape.box === selected ? theme.other : theme.ink,
      removed ? 0.3 : 1,
      shape.box === selected ? 3 : 1,
    );
    const spacing = shape.lines.length > 2 ? 12.5 : 14;
    shape.lines.forEach((text, number) => {
      const middle = top + height / 2 + (number - (shape.lines.length - 1) / 2) * spacing * scale;
      painter.text(text, left + width / 2, middle, {
        size: 12 * scale,
        align: "center",
        color: removed ? theme.muted : theme.ink,
      });
    });
  }
  for (const label of layout.labels)
    painter.text(label.text, x + label.x * scale, y + label.y * scale, { size: 12 * scale, align: "center" });
}

function drawLine(painter: Painter, line: Connector, scale: number, x: number, y: number): void {
  const theme = colors.get();
  const color = line.role === "memory" ? theme.accent : line.role === "residual" ? theme.muted : theme.ink;
  const points = line.points.map((value, i) => value * scale + (i % 2 ? y : x));
  const ends: number[] = [];
  for (let i = 0; i + 3 < points.length; i += 2) ends.push(points[i]!, points[i + 1]!, points[i + 2]!, points[i + 3]!);
  if (line.arrow) {
    const [fromX, fromY, toX, toY] = points.slice(-4) as [number, number, number, number];
    const length = Math.hypot(toX - fromX, toY - fromY) || 1;
    const [dx, dy] = [(toX - fromX) / length, (toY - fromY) / length];
    for (const side of [-1, 1])
      ends.push(toX - ARROW * scale * (dx + side * dy), toY - ARROW * scale * (dy - side * dx), toX, toY);
  }
  painter.lines(ends, color, 1, false, 1.2);
}

const CHARACTER = 7; // approximate width in pixels

const shortToken = (token: string) => truncate(visibleToken(token), 14);

/** A matrix that fits into `room` pixels, with labels on the left and, for tokens, on top. */
export function signedMapLayout({ rows, columns, width: across }: Matrix, room: number, maxRow = 18): MapLayout {
  const longest = (labels: readonly string[]) =>
    8 + CHARACTER * Math.max(1, ...labels.map((label) => shortToken(label).length));
  const left = longest(rows);
  const top = columns ? longest(columns) : 0;
  const width = Math.max(0.2, Math.min(columns ? 26 : across <= 8 ? 40 : 8, (room - left) / across));
  const height = Math.max(2, Math.min(columns ? Math.max(14, width) : maxRow, 26));
  return {
    left,
    top,
    cell: [width, height],
    width: Math.ceil(left + width * across),
    height: Math.ceil(top + height * rows.length),
  };
}

/** Positive numbers in one color, negative ones in another; masked cells stay empty. */
export function drawSignedMap(
  painter: Painter,
  matrix: Matrix,
  layout: MapLayout,
  largest: number,
  x = 0,
  y = 0,
): void {
  const [width, height] = layout.cell;
  const [left, top] = [x + layout.left, y + layout.top];
  signedMatrix(
    painter,
    matrix.values,
    largest,
    matrix.width,
    left,
    top,
    width * matrix.width,
    height * matrix.rows.length,
  );
  const every = Math.ceil(11 / height); // low rows are not all labeled
  matrix.rows.forEach((label, row) => {
    if (row % every === 0)
      painter.text(shortToken(label), left - 6, top + (row + 0.5) * height, { size: 12, mono: true, align: "right" });
  });
  matrix.columns?.forEach((label, column) => {
    if (width >= 9)
      painter.text(shortToken(label), left + (column + 0.5) * width, top - 6, { size: 12, mono: true, rotated: true });
  });
}

interface SignedHeatMapProps {
  readonly matrix: Matrix;
  readonly label: string;
  /** Maximum height of a row in pixels. */
  readonly maxRow?: number;
  /** Magnitude of the full color; by default the largest one. */
  readonly full?: number;
}

export function SignedHeatMap({ matrix, label, maxRow, full }: SignedHeatMapProps) {
  const largest = full ?? largestMagnitude(matrix.values);
  return (
    <HeatMap
      size={[matrix.rows.length, matrix.width]}
      layout={(room) => signedMapLayout(matrix, Math.max(200, room), maxRow)}
      inputs={[matrix, maxRow, full]}
      label={label}
      draw={(painter, layout) => drawSignedMap(painter, matrix, layout, largest)}
      describe={(cell) => {
        if (!cell)
          return (
            `Blue is positive, orange negative; full color at ±${formatNumber(largest)}. Point at a cell for its ` +
            "number."
          );
        const [row, column] = cell;
        const name = matrix.columns ? visibleToken(matrix.columns[column]!) : `dimension ${column}`;
        return (
          `${visibleToken(matrix.rows[row]!)}, ${name}: ` +
          `${formatNumber(matrix.values[row * matrix.width + column]!)}`
        );
      }}
    />
  );
}

const ROW = 9; // pixels

export function Encodings({ payload }: { payload: FigurePayload }) {
  const { width, count, layout } = encodingOptions(currentRoute.use());
  const matrix = useMemo(() => sinusoids({ width, count, layout }), [width, count, layout]);
  const learned = useMemo(() => learnedEncodings(payload), [payload]);
  const { model, positions } = payload;
  const number = (label: string, name: string, value: number, limits: object) => (
    <label>
      {label}
      <input
        type="number"
        {...limits}
        value={value}
        onChange={(event) => setParameters({ [name]: event.currentTarget.value })}
      />
    </label>
  );
  return (
    <section aria-labelledby="encodings">
      <h2 id="encodings">Positional encodings</h2>
      <p>
        Row t is added to the vector of the token at position t: p<sub>t</sub>[2k] = sin(w<sub>k</sub> t), p<sub>t</sub>
        [2k+1] = cos(w<sub>k</sub> t), w<sub>k</sub> = 1 / 10000
        <sup>2k/d</sup>. The interleaved layout puts each sine next to its cosine, as in the paper; halves put all sines
        first: the same numbers in another order.
      </p>
      <div class="choices">
        {number("Dimension", "width", width, { min: 2, max: MAX_WIDTH, step: 2 })}
        {number("Positions", "count", count, { min: 1, max: MAX_COUNT })}
        <ButtonGroup
          title="Layout"
          options={["interleaved", "halves"]}
          value={layout}
          onSelect={(value) => setParameters({ layout: value })}
        />
        <fieldset>
          <legend>Sizes in the lectures</legend>
          {PRESETS.map((one) => (
            <button
              key={one.width}
              type="button"
              onClick={() => setParameters({ width: String(one.width), count: String(one.count), layout: one.layout })}
            >
              {one.width} × {one.count}
            </button>
          ))}
        </fieldset>
      </div>
      <SignedHeatMap
        matrix={matrix}
        label={`Sinusoids, ${count} positions × ${width} dimensions, ${layout}`}
        maxRow={count > 24 ? ROW : 14}
        full={1}
      />
      <p class="muted">
        In Python:{" "}
        <code>
          regard.interpret.figure.figure.positional_encoding({width}, {count}, "{layout}")
        </code>
      </p>
      {learned ? (
        <>
          <h3>
            The learned embeddings of {model.name}: the first {learned.rows.length} positions × {learned.width}
          </h3>
          <SignedHeatMap
            matrix={learned}
            label={`Learned positions of ${model.name}, ${learned.rows.length} × ${learned.width}`}
            maxRow={ROW}
          />
        </>
      ) : (
        <p class="muted">
          {positions
            ? `${model.name} adds sinusoids, ${positions.arrangement}, ${positions.shape[1]} wide.`
            : `${model.name} adds no positions.`}
        </p>
      )}
    </section>
  );
}

export const MAX_WIDTH = 1024;
export const MAX_COUNT = 512;

export interface EncodingOptions {
  readonly width: number;
  readonly count: number;
  readonly layout: "interleaved" | "halves";
}

/** The sizes in the lectures. */
export const PRESETS: readonly EncodingOptions[] = [
  { width: 128, count: 50, layout: "interleaved" },
  { width: 512, count: 20, layout: "halves" },
  { width: 64, count: 10, layout: "interleaved" },
];

export function encodingOptions({ parameters }: Route): EncodingOptions {
  const number = (name: string, most: number, fallback: number) => {
    const value = Number.parseInt(parameters[name] ?? "", 10);
    return value >= 1 && value <= most ? value : fallback;
  };
  const width = number("width", MAX_WIDTH, 128);
  return {
    width: width + (width % 2),
    count: number("count", MAX_COUNT, 50),
    layout: parameters["layout"] === "halves" ? "halves" : "interleaved",
  };
}

/** p(t)[2k] = sin(w t), p(t)[2k+1] = cos(w t) with w = 10000^(-2k/width); halves: all sines, then all cosines. */
export function sinusoids({ width, count, layout }: EncodingOptions): Matrix {
  const values = new Float32Array(width * count);
  for (let t = 0; t < count; t++) {
    for (let k = 0; k < width / 2; k++) {
      const angle = t * 10000 ** ((-2 * k) / width);
      const [sine, cosine] = layout === "halves" ? [k, width / 2 + k] : [2 * k, 2 * k + 1];
      values[t * width + sine] = Math.sin(angle);
      values[t * width + cosine] = Math.cos(angle);
    }
  }
  return { values, width, rows: positionLabels(count), columns: null };
}

/** The learned position embeddings of the model, if it has any. */
export function learnedEncodings({ positions }: FigurePayload): Matrix | null {
  if (!positions?.data) return null;
  return {
    values: halves(bytes(positions.data)),
    width: positions.shape[1],
    rows: positionLabels(positions.shape[0]),
    columns: null,
  };
}

const positionLabels = (count: number) => Array.from({ length: count }, (_, position) => String(position));

const [MARGIN, TOP, ROOM, LINE] = [16, 44, 520, 17];

export function drawing(payload: FigurePayload, route: Route): Drawing {
  const { mode, box, tensor, tensorName, head, layer, name } = selectionOf(payload, route);
  if (mode === "positions") return encodingsDrawing(payload, route);
  if (mode === "stream") return streamDrawing(payload, streamSelection(payload, route));
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
      painter.text(
        `${model.name}: ${truncate(text, 90)}${without.length ? ` (without ${without.join(", ")})` : ""}`,
        MARGIN,
        20,
        { size: 14, bold: true },
      );
      drawFigure(painter, payload, 1, name, MARGIN, TOP);
      const where =
        `${box.steps.length > 1 ? `, layer ${layer}` : ""}: ${tensorName} ` +
        `(${formatShape(tensor.shape)})${tensor.shape.length === 3 ? `, head ${head}` : ""}`;
      painter.text(`${box.title}${where}`, left, TOP, { size: 13, bold: true });
      lines.forEach((line, number) =>
        painter.text(line, left, TOP + 20 + LINE * number, { size: 12, mono: true, color: colors.get().muted }),
      );
      const y = TOP + 28 + LINE * lines.length;
      if (matrix && map) drawSignedMap(painter, matrix, map, largestMagnitude(matrix.values), left, y);
      tensor.words?.forEach((best, row) => {
        const words = best.slice(0, 4).map(([word, value]) => `${visibleToken(word)} ${formatNumber(value)}`);
        painter.text(
          `${visibleToken(rowTokens(payload, tensor)?.[row] ?? "")}: ${words.join("  ")}`,
          left,
          y + 8 + 20 * row,
          { size: 12, mono: true },
        );
      });
      removal.forEach((line, number) =>
        painter.text(line, left, below + LINE * number, number ? { size: 12, mono: true } : { size: 13, bold: true }),
      );
    },
  };
}

/** The effect of removing each part: the loss of the text, and the output. */
function removalLines({ ablation }: FigurePayload): string[] {
  if (!ablation) return [];
  const { outcomes, remarks } = ablation;
  const effects = outcomes.flatMap((one) => [
    `${nameOf(one)}: loss ` +
      `${formatLoss(one.loss)}${one === outcomes[0] ? "" : ` (${formatChange(one.loss, outcomes[0]!.loss)})`}`,
    `  output: ${truncate(one.output.replace(/\s+/g, " "), 60)}`,
  ]);
  return ["Effect of removing parts", ...effects, ...remarks.flatMap((remark) => wrap(remark, 72))];
}

function encodingsDrawing(payload: FigurePayload, route: Route): Drawing {
  const options = encodingOptions(route);
  const learned = learnedEncodings(payload);
  const parts: [string, Matrix, number][] = [
    [`sinusoids, ${options.count} × ${options.width}, ${options.layout}`, sinusoids(options), 1],
  ];
  if (learned)
    parts.push([
      `learned by ${payload.model.name}, ${learned.rows.length} × ${learned.width}`,
      learned,
      largestMagnitude(learned.values),
    ]);
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
    return {
      headers: ["position", "dimension", "value"],
      rows: Array.from(values, (value, at) => [Math.floor(at / width), at % width, Number(value.toPrecision(7))]),
    };
  }
  if (mode === "stream") return streamTable(payload, streamSelection(payload, route));
  if (tensor.words) {
    const tokens = rowTokens(payload, tensor) ?? [];
    return {
      headers: ["box", "tensor", "row", "token", "rank", "word", "value"],
      rows: tensor.words.flatMap((best, row) =>
        best.map(([word, value], rank) => [name, tensorName, row, tokens[row] ?? "", rank + 1, word, value]),
      ),
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
        return [
          name,
          box.steps.length > 1 ? layer : "",
          tensorName,
          heads > 1 ? head : "",
          row,
          rows[row]!,
          column,
          columns?.[column] ?? "",
          number,
        ];
      });
    }),
  };
}

export function RemoveButtons({ payload }: { payload: FigurePayload }) {
  const press = (name: string) => {
    const off = payload.components
      .filter((one) => (one.name === name ? !one.removed : one.removed))
      .map((one) => one.name);
    // With the text: the route does not contain the initial one.
    setParameters({ text: payload.text, target: payload.given, without: off.join(",") });
  };
  const disabled = payload.components.filter((one) => one.disabled);
  return (
    <>
      <div class="choices">
        <fieldset>
          <legend>Remove</legend>
          {payload.components.map((one) => (
            <button
              key={one.name}
              type="button"
              aria-pressed={one.removed}
              disabled={one.disabled !== null || !inStudio()}
              onClick={() => press(one.name)}
            >
              {one.title}
            </button>
          ))}
        </fieldset>
      </div>
      <Notes notes={disabled.map((one) => `${one.title}: ${one.disabled}.`)} class="muted" />
      {!inStudio() && (
        <p class="muted">
          This file contains one run of the model. To remove other parts, use --without or the studio.
        </p>
      )}
    </>
  );
}

export const nameOf = ({ without }: AblationOutcome) =>
  without.map((name) => `no ${name}`).join(", ") || "intact model";

export function PartRemoval({ payload }: { payload: FigurePayload }) {
  const measureEach = () =>
    setParameters({ text: payload.text, target: payload.given, without: payload.without.join(","), ablation: "1" });
  const all = payload.components
    .filter((one) => !one.disabled)
    .every((one) => payload.ablation?.outcomes.some(({ without }) => without.join() === one.name));
  return (
    <section aria-labelledby="part-removal" class="figure-removal">
      <h2 id="part-removal">Effect of removing parts</h2>
      {payload.ablation && <RemovalTable payload={payload} ablation={payload.ablation} />}
      {!all && inStudio() && (
        <p>
          <button type="button" onClick={measureEach}>
            Measure the effect of removing each part
          </button>
        </p>
      )}
      {!payload.ablation && !inStudio() && (
        <p class="muted">It was not measured for this file: use the studio, or `regard figure`.</p>
      )}
    </section>
  );
}

function RemovalTable({
  payload,
  ablation: { measure, outcomes, sentences, remarks },
}: {
  payload: FigurePayload;
  ablation: ComponentAblation;
}) {
  const intact = outcomes[0]!;
  const removed = [...payload.without].sort().join();
  const current = outcomes.find((one) => [...one.without].sort().join() === removed) ?? intact;
  const wide = (content: string) => ({ content, class: "figure-output" });
  return (
    <>
      <p class="muted">
        Loss: {measure}.
        {payload.target !== null &&
          ` The translation is “${payload.target}”${payload.given ? "" : ", the output of the intact model"}.`}
      </p>
      <DataTable
        class="figure-numbers"
        label="Effect of removing parts"
        headers={[
          "without",
          "loss here",
          "change",
          ...(sentences.length ? [`loss of ${sentences.length} built-in sentences`, "change"] : []),
          wide("output"),
        ]}
        rows={outcomes.map((one) => [
          nameOf(one),
          formatLoss(one.loss),
          one === intact ? "" : formatChange(one.loss, intact.loss),
          ...(sentences.length
            ? [
                formatLoss(one.sentences_loss),
                one === intact ? "" : formatChange(one.sentences_loss, intact.sentences_loss),
              ]
            : []),
          wide(one.output || "nothing"),
        ])}
        rowProps={(row) => (outcomes[row] === current ? { class: "figure-current", "aria-current": "true" } : {})}
      />
      <Notes notes={remarks} />
      {sentences.length > 0 ? (
        <details>
          <summary>The {sentences.length} built-in sentences</summary>
          <ul>
            {sentences.map(([text, target]) => (
              <li key={text}>{target === null ? text : `${text} → ${target}`}</li>
            ))}
          </ul>
        </details>
      ) : (
        <p class="muted">Only this text is measured: there are no built-in sentences in the languages of this model.</p>
      )}
      <h3>Token by token{current === intact ? "" : `, ${nameOf(current)}`}</h3>
      <TokenTable before={intact.predictions} after={current === intact ? null : current.predictions} />
    </>
  );
}

export const formatLoss = (value: number | null) => (value === null ? "–" : value.toFixed(3));
const formatProbability = (value: number | null) => (value === null ? "–" : `${(100 * value).toFixed(1)}%`);

export function formatChange(value: number | null, before: number | null): string {
  if (value === null || before === null) return "–";
  const magnitude = Math.abs(value - before).toFixed(3);
  return `${value < before && Number(magnitude) ? "−" : "+"}${magnitude}`;
}

function TokenTable({
  before,
  after,
}: {
  before: readonly TokenPrediction[];
  after: readonly TokenPrediction[] | null;
}) {
  const words = (best: TokenPrediction["best"]) => ({
    class: "figure-output",
    content: best.map(([word, value], rank) => (
      <span key={rank}>
        <span class="token">{visibleToken(word)}</span> {formatProbability(value)}{" "}
      </span>
    )),
  });
  return (
    <DataTable
      class="figure-numbers"
      label="Token by token"
      headers={[
        "correct token",
        after ? "intact model" : "probability",
        ...(after ? ["now"] : []),
        { content: `most probable${after ? " now" : ""}`, class: "figure-output" },
      ]}
      rows={before.map((one, number) => [
        one.token === null ? "a blank" : visibleToken(one.token),
        formatProbability(one.probability),
        ...(after ? [formatProbability(after[number]!.probability)] : []),
        words((after ?? before)[number]!.best),
      ])}
    />
  );
}
