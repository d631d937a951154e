// Figure 1: the diagram of the Transformer with the tensors of a sentence in every box, parts that can be removed, and
// positional encodings.
import { useMemo } from "preact/hooks";
import { Canvas, useWidth } from "../canvas";
import { DataTable, LayerSelect, Notes, Select } from "../components";
import { decimal, fixedPercent, range } from "../format";
import { currentRoute, onArrowKeys, type Route, setParameters } from "../route";
import { thumbnails } from "../thumbnails";
import type { TensorView } from "../types";
import type { View } from "../view";
import { drawFigure, drawing, Encodings, PartRemoval, RemoveButtons, SignedHeatMap, table } from "./figure/draw";
import "./figure/figure.css";
import { JourneyControls, MovingToken, useJourney } from "./figure/journey";
import { layoutOf } from "./figure/layout";
import {
  type FigurePayload,
  formatNumber,
  formatShape,
  type Matrix,
  MODES,
  matrixOf,
  rowTokens,
  type Selection,
  selectionOf,
  visibleToken,
} from "./figure/payload";
import { ResidualStream } from "./figure/stream";

const MODE_LABELS: Record<(typeof MODES)[number], string> = {
  figure: "Figure",
  stream: "Residual stream",
  positions: "Positional encodings",
};

function Show({ payload }: { payload: FigurePayload }) {
  const route = currentRoute.use();
  const selection = useMemo(() => selectionOf(payload, route), [payload, route]);
  const { model } = payload;
  const halves = Object.keys(payload.tokens);
  const which =
    halves.length === 2
      ? "both halves"
      : halves[0] === "encoder"
        ? "the left half, with its head"
        : "the right half, without an encoder";
  return (
    <section class="figure-one" aria-label="Figure 1">
      <p class="muted">
        {model.name} ({model.family}): {which}; {model.depth} layers of {model.heads} heads, {model.width} wide.{" "}
        {model.norms}
      </p>
      <Notes notes={payload.notes} class="muted" />
      <div class="choices">
        <span class="group" role="group" aria-label="What is shown">
          {MODES.map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={selection.mode === name}
              onClick={() => setParameters({ mode: name === "figure" ? "" : name })}
            >
              {MODE_LABELS[name]}
            </button>
          ))}
        </span>
      </div>
      {selection.mode === "positions" ? (
        <Encodings payload={payload} />
      ) : selection.mode === "stream" ? (
        <ResidualStream payload={payload} />
      ) : (
        <>
          <RemoveButtons payload={payload} />
          <div class={halves.length === 2 ? "split" : "split half"}>
            <Diagram payload={payload} selection={selection} />
            <BoxPanel payload={payload} selection={selection} />
          </div>
          <PartRemoval payload={payload} />
        </>
      )}
    </section>
  );
}

/** The parts that can be removed, as words of a sentence. */
const PARTS: Readonly<Record<string, string>> = { positions: "positional encodings", residual: "residual connections" };

/** The part whose removal costs most, where it was measured; else the strongest number of the selected attention. */
function finding(payload: FigurePayload, route: Route): string {
  const { ablation, model } = payload;
  const [intact, ...removed] = ablation?.outcomes ?? [];
  const worst = removed
    .filter((one) => one.without.length === 1 && one.loss !== null)
    .sort((a, b) => b.loss! - a.loss!)[0];
  if (worst && intact?.loss != null)
    return (
      `${model.name} needs its ${PARTS[worst.without[0]!] ?? worst.without[0]} most: the loss rises from ` +
      `${decimal(intact.loss, 2)} to ${decimal(worst.loss!, 2)} without it`
    );
  const { box, tensor, tensorName, layer, head } = selectionOf(payload, route);
  const matrix = tensorName === "weights" && !tensor.words ? matrixOf(payload, tensor, head) : null;
  if (!matrix?.columns) return "";
  const words = (cell: number) =>
    [matrix.rows[Math.floor(cell / matrix.width)]!, matrix.columns![cell % matrix.width]!] as const;
  const counts = (cell: number) => words(cell).every((word) => !/^[<[]/.test(word.trim()));
  const at = matrix.values.reduce(
    (best, value, cell) => (counts(cell) && (best < 0 || value > matrix.values[best]!) ? cell : best),
    -1,
  );
  if (at < 0) return "";
  const [row, column] = words(at);
  return (
    `${box.title}, layer ${layer}, head ${head} of ${model.name}: “${row.trim()}” attends to “${column.trim()}” ` +
    `(${fixedPercent(matrix.values[at]!, 0)})`
  );
}

const SCHOOL = "Ich gehe heute nicht zur Schule.";

export const figure: View<FigurePayload> = {
  name: "figure",
  title: "Figure 1",
  about:
    "Figure 1 of “Attention Is All You Need” for a model, with the numbers of your sentence in every box. Press a " +
    "box, follow a token, or remove a part and see the effect.",
  group: "inside",
  examples: [
    { label: "As the paper draws it", values: { text: SCHOOL } },
    { label: "Norm before each sublayer", values: { text: "Ich muss auf den Markt gehen." }, model: "regard-de-en" },
    { label: "Residual stream", values: { text: SCHOOL }, select: { mode: "stream" } },
    { label: "Positional encodings", values: { text: SCHOOL }, select: { mode: "positions" } },
    {
      label: "Only the left half: BERT",
      values: { text: "The animal did not cross the street." },
      model: "regard-bert",
    },
    {
      label: "Only the right half: GPT",
      values: { text: "The animal did not cross the street." },
      model: "regard-gpt",
    },
  ],
  travels: { text: "text", second: "target", layer: true },
  Thumbnail: thumbnails.figure,
  finding,
  verb: "figure",
  excludes: ["fine-tuned", "image", "recurrent"],
  prefers: ["post-norm", "translation"],
  fields: [
    { name: "text", label: "Text", start: SCHOOL },
    { name: "target", label: "Translation (optional, for translators)", start: "", optional: true },
    { name: "without", label: "Removed parts", start: "", hidden: true },
    { name: "ablation", label: "Effect of removing each part", start: "", hidden: true },
  ],
  // The effect of removing each part takes longer than the figure, so it is measured on request.
  toRequest: (args) => ({
    ...args,
    without: (args["without"] ?? "").split(",").filter((name) => name.trim()),
    ablation: args["ablation"] === "1",
  }),
  Show,
  drawing,
  table,
};

const FIRST = 6; // numbers per row
const WORDS = 5;

export function BoxPanel({ payload, selection }: { payload: FigurePayload; selection: Selection }) {
  const { box, step, tensor, tensorName, layer, head } = selection;
  const matrix = useMemo(() => (tensor.words ? null : matrixOf(payload, tensor, head)), [payload, tensor, head]);
  const weights = Object.entries(step.parameters).map(([name, shape]) => `${name} (${formatShape(shape)})`);
  return (
    <section class="figure-panel" aria-labelledby="box">
      <h2 id="box">
        {box.title} <span class="muted">{Object.keys(payload.tokens).length > 1 ? `of the ${box.part}` : ""}</span>
      </h2>
      <p>{box.about}</p>
      <div class="choices">
        <LayerSelect layer={layer} layers={box.steps.length} onSelect={(value) => setParameters({ layer: value })} />
      </div>
      <pre tabIndex={0} aria-label="Code of this box">
        {box.code}
      </pre>
      <p class="muted">
        {weights.length > 0 && `With ${weights.join(", ")}. `}
        These lines were run on this sentence; they reproduce the model’s numbers up to{" "}
        <span class="figure-number">{step.difference ? step.difference.toExponential(1) : 0}</span>.
      </p>
      <div class="choices">
        <fieldset>
          <legend>Tensor</legend>
          {step.tensors.map(([name, index]) => (
            <button
              key={name}
              type="button"
              aria-pressed={name === tensorName}
              onClick={() => setParameters({ tensor: name })}
            >
              {name} <small>{formatShape(payload.tensors[index]!.shape)}</small>
            </button>
          ))}
        </fieldset>
        {tensor.shape.length === 3 && (
          <Select
            label="Head"
            options={tensor.shape[0]!}
            value={head}
            onSelect={(value) => setParameters({ head: value })}
          />
        )}
      </div>
      {matrix && tensor.data !== null && (
        <SignedHeatMap matrix={matrix} label={`Heat map of ${tensorName}, ${formatShape(tensor.shape)}`} />
      )}
      {matrix && <Numbers matrix={matrix} tensor={tensor} />}
      {tensor.words && (
        <Words payload={payload} tensor={tensor} isProbability={tensorName === "out" && box.kind === "softmax"} />
      )}
    </section>
  );
}

/** The first numbers of every row; all numbers of a map between tokens. */
function Numbers({ matrix: { values, width, rows, columns }, tensor }: { matrix: Matrix; tensor: TensorView }) {
  const count = columns ? width : Math.min(width, FIRST);
  const more = width > count;
  const headers = range(count).map((column) =>
    columns ? visibleToken(columns[column]!) : tensor.values ? "id" : column,
  );
  const cells = (row: number) => range(count).map((column) => formatNumber(values[row * width + column]!));
  return (
    <DataTable
      class="figure-numbers"
      label="Numbers"
      headers={[tensor.rows ? "token" : "row", ...headers, ...(more ? [`… ${width - 1}`] : [])]}
      rows={rows.map((name, row) => [
        visibleToken(name),
        ...cells(row),
        ...(more ? [`… ${formatNumber(values[(row + 1) * width - 1]!)}`] : []),
      ])}
    />
  );
}

function Words({
  payload,
  tensor,
  isProbability,
}: {
  payload: FigurePayload;
  tensor: TensorView;
  isProbability: boolean;
}) {
  const tokens = rowTokens(payload, tensor) ?? [];
  const cell = ([word, value]: readonly [string, number]) => (
    <>
      <span class="token">{visibleToken(word)}</span>{" "}
      {isProbability ? `${(100 * value).toFixed(1)}%` : value.toFixed(2)}
    </>
  );
  return (
    <DataTable
      class="figure-numbers"
      label="Most probable words"
      headers={[tensor.rows === "decoder" ? "after" : "at", ...range(WORDS).map((rank) => `${rank + 1}.`)]}
      rows={tensor.words!.map((best, row) => [visibleToken(tokens[row] ?? ""), ...best.slice(0, WORDS).map(cell)])}
    />
  );
}

const MAX_SCALE = 1.25;

export function Diagram({ payload, selection }: { payload: FigurePayload; selection: Selection }) {
  const [element, room] = useWidth<HTMLDivElement>();
  const { boxes } = payload;
  const journey = useJourney(payload, selection);
  const layout = layoutOf(payload);
  const scale = Math.min(MAX_SCALE, room / layout.width);
  const size = { width: layout.width * scale, height: layout.height * scale };
  const pixels = (value: number) => `${value * scale}px`;
  const select = (box: string) => setParameters({ box, tensor: "" });
  const move = onArrowKeys({ ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }, (step, diagram) => {
    const next = layout.shapes[layout.shapes.findIndex((shape) => shape.box === selection.name) + step]?.box;
    if (next === undefined) return;
    select(next);
    diagram.querySelector<HTMLElement>(`[data-box="${next}"]`)?.focus();
  });
  return (
    <div ref={element}>
      <JourneyControls payload={payload} selection={selection} journey={journey} />
      {room > 0 && (
        <div
          class="figure-diagram"
          role="group"
          aria-label="Boxes of the figure, from the inputs up"
          onKeyDown={move}
          style={{ width: `${size.width}px`, height: `${size.height}px` }}
        >
          <Canvas
            {...size}
            inputs={[payload, scale, selection.name]}
            draw={(painter) => drawFigure(painter, payload, scale, selection.name)}
          />
          {layout.shapes.map(({ box, x, y, width, height }) => (
            <button
              key={box}
              type="button"
              data-box={box}
              aria-pressed={box === selection.name}
              aria-label={`${boxes[box]!.title}, ${boxes[box]!.part}`}
              title={
                `${boxes[box]!.title}: ` +
                `${formatShape(payload.tensors[boxes[box]!.steps[0]!.tensors.at(-1)![1]]!.shape)}`
              }
              style={{ left: pixels(x), top: pixels(y), width: pixels(width), height: pixels(height) }}
              onClick={() => select(box)}
            />
          ))}
          <MovingToken payload={payload} selection={selection} journey={journey} scale={scale} />
        </div>
      )}
    </div>
  );
}
