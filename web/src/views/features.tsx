// Features: from sentences to a classifier, one stage after the other.
import type { ComponentChildren } from "preact";
import { Canvas } from "../canvas";
import { DataTable, Notes } from "../components";
import { count, range, shape } from "../format";
import { outline, type Painter } from "../painter";
import { currentRoute, onArrowKeys, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { RegressionScore } from "../types";
import type { View, ViewOf } from "../view";
import "./embeddings/embeddings.css";
import { REVIEWS } from "./embeddings/examples";
import { OpenFile } from "./embeddings/open_file";

const STAGES = [
  "Sentences",
  "Tokens",
  "Ids",
  "Padding",
  "Mask",
  "Hidden states",
  "Slice",
  "Learning",
  "Score",
] as const;
const BOX = { width: 362, height: 226 };
const [LEFT, TOP, WIDTH, HEIGHT, DEPTH] = [34, 60, 180, 120, 48];
const LAST = STAGES.length - 1;

function Show({ payload }: { payload: Pipeline }) {
  const stage = stageOf(currentRoute.use());
  const select = (next: number) => setParameters({ step: String(Math.max(0, Math.min(LAST, next)) + 1) });
  const onKeyDown = onArrowKeys({ ArrowLeft: -1, ArrowRight: 1 }, (change) => stage !== null && select(stage + change));
  return (
    <section class="pipeline" aria-label="Features" onKeyDown={onKeyDown}>
      <OpenFile view="features" field="data" />
      <Notes notes={payload.notes} />
      <ol class="stages">
        {STAGES.map((name, number) => (
          <li key={name}>
            <button type="button" aria-pressed={stage === number} onClick={() => select(number)}>
              {number + 1} {name}
            </button>
          </li>
        ))}
        <li>
          <button type="button" aria-pressed={stage === null} onClick={() => setParameters({ step: "all" })}>
            All
          </button>
        </li>
      </ol>
      {(stage === null ? range(STAGES.length) : [stage]).map((number) => (
        <Stage key={number} data={payload} number={number} />
      ))}
      {stage !== null && (
        <p class="choices">
          <button type="button" disabled={stage === 0} onClick={() => select(stage - 1)}>
            ← Back
          </button>
          <button type="button" disabled={stage === LAST} onClick={() => select(stage + 1)}>
            Next →
          </button>
        </p>
      )}
    </section>
  );
}

/** The stage shown, from 0; null means all. */
function stageOf({ parameters }: Route): number | null {
  if (parameters["step"] === "all") return null;
  const stage = Number.parseInt(parameters["step"] ?? "1", 10) - 1;
  return stage >= 0 && stage <= LAST ? stage : 0;
}

function drawing(data: Pipeline) {
  return {
    width: 740,
    height: BOX.height + 10,
    draw(painter: Painter) {
      const { accent, other, muted } = colors.get();
      drawTensorBox(painter, data.hidden, data.pooling);
      painter.text(`Accuracy in 5 folds of ${data.matrix[0]} texts, ${data.model}`, 380, 40, { bold: true });
      accuracies(data).forEach(({ name, value, text }, number) => {
        painter.text(name, 380, 74 + 46 * number, { size: 12 });
        painter.rect(380, 84 + 46 * number, 2.2 * value, 14, [muted, accent, other][number]!);
        painter.text(text, 388 + 2.2 * value, 91 + 46 * number, { size: 12, bold: true });
      });
    },
  };
}

export const features: View<Pipeline> = {
  name: "features",
  title: "Features",
  about: "From sentences to a classifier in nine steps, with a frozen model.",
  group: "vectors",
  examples: [
    { label: "Films: the [CLS] vector", values: { data: REVIEWS, pooling: "cls", layers: "-1" } },
    {
      label: "Films: the mean of all tokens",
      values: { data: REVIEWS, pooling: "mean", layers: "-1" },
      select: { step: "7" },
    },
    {
      label: "The last four layers together",
      values: { data: REVIEWS, pooling: "mean", layers: "concat(-4:)" },
      select: { step: "6" },
    },
    {
      label: "With GPT instead of BERT",
      values: { data: REVIEWS, pooling: "mean", layers: "-1" },
      select: { step: "9" },
      model: "regard-gpt",
    },
  ],
  Thumbnail: thumbnails.features,
  finding: ({ masked, model, matrix }) =>
    `${spread(masked)} correct in 5-fold cross-validation on ${count(matrix[0])} texts with the frozen ${model}; ` +
    `always guessing the most common label gives ${masked.guess.toFixed(0)}%`,
  verb: "features",
  excludes: ["translation", "image"],
  fields: [
    {
      name: "data",
      label: "Sentences, one per line, with a label after | or a tab; at least five of each label",
      lines: 5,
      start: REVIEWS,
    },
    { name: "pooling", label: "Pooling (cls or mean)", start: "cls", fold: true },
    { name: "layers", label: "Layers, such as -1 or concat(-4:)", start: "-1", fold: true },
  ],
  toRequest: (args) => ({ ...args, limit: MAX_ROWS, sample: MAX_TEXTS }),
  Show,
  drawing,
  // The format that the command line reads.
  table: ({ examples }) => ({ headers: ["text", "label"], rows: examples }),
};

const MAX_ROWS = 300_000; // all lines that can be sent
const MAX_TEXTS = 500; // each is embedded with and without a mask

/** The page always compares both variants. */
type Pipeline = ViewOf<"features"> & { readonly unmasked: RegressionScore; readonly similarity: number };

const MAX_COLUMNS = 40;

function Stage({ data, number }: { data: Pipeline; number: number }) {
  const bodies: readonly (() => ComponentChildren)[] = [
    () => <Sentences data={data} />,
    () => (
      <Rows
        rows={data.tokens}
        kind="token"
        text="The tokenizer splits each text into tokens of its vocabulary and adds special tokens."
      />
    ),
    () => (
      <Rows
        rows={data.ids}
        kind="number"
        text="Each token becomes its index in the vocabulary; texts have different lengths."
      />
    ),
    () => (
      <Rows
        rows={data.padded}
        kind="number"
        mask={data.mask}
        text={
          `All rows are padded to the length of the longest text: ${shape(data.matrix)}, of which ` +
          `${data.padding.toFixed(0)}% is padding.`
        }
      />
    ),
    () => (
      <Rows
        rows={data.mask}
        kind="number"
        mask={data.mask}
        text={
          `The attention mask, ${shape(data.matrix)}, marks tokens (1) and padding (0), which must not be attended ` +
          "to. The slides omit it; the mean cosine of a text’s vectors with and without it is " +
          `${(data.similarity / 100).toFixed(3)} here.`
        }
      />
    ),
    () => (
      <>
        <p>
          {data.model} returns {shape(data.hidden)} numbers: texts × tokens × width (layer {data.layer}).
        </p>
        <Box data={data} slice={null} />
      </>
    ),
    () => <Slice data={data} />,
    () => (
      <p>
        Logistic regression learns the label from the {count(data.slice[1])} numbers of each text. Five times it is
        trained on four fifths of the texts and tested on the remaining fifth. The model itself is not changed.
      </p>
    ),
    () => <Score data={data} />,
  ];
  return (
    <section aria-labelledby={`stage-${number}`}>
      <h2 id={`stage-${number}`}>
        {number + 1}. {STAGES[number]}
      </h2>
      {bodies[number]!()}
    </section>
  );
}

function Sentences({ data }: { data: Pipeline }) {
  const counts = Object.entries(data.counts).map(([label, texts]) => `${label}: ${count(texts)}`);
  return (
    <>
      <p>
        {count(data.matrix[0])} texts with labels ({counts.join(", ")}); the first {data.texts.length}:
      </p>
      <DataTable
        class="stage"
        headers={["Text", "Label"]}
        rows={data.texts.map((text, number) => [text, data.labels[number]])}
      />
    </>
  );
}

interface RowsProps {
  readonly text: string;
  readonly rows: readonly (readonly (string | number)[])[];
  readonly kind: "token" | "number";
  readonly mask?: readonly (readonly number[])[];
}

function Rows({ text, rows, kind, mask }: RowsProps) {
  const cells = (row: readonly (string | number)[], number: number) => [
    ...row
      .slice(0, MAX_COLUMNS)
      .map((content, column) => ({ content, class: mask?.[number]?.[column] === 0 ? `${kind} pad` : kind })),
    ...(row.length > MAX_COLUMNS ? [{ content: `and ${row.length - MAX_COLUMNS} more`, class: "muted" }] : []),
  ];
  return (
    <>
      <p>{text}</p>
      <DataTable
        class="stage"
        label="The first texts"
        rows={rows.map((row, number) => [number + 1, ...cells(row, number)])}
      />
    </>
  );
}

function Slice({ data }: { data: Pipeline }) {
  const number = (value: number) => ({ content: value.toFixed(4), class: "number" });
  return (
    <>
      <p>
        {data.pooling === "cls" ? (
          <>
            Only the first token of each text is kept, the slice <code>[:, 0, :]</code>, which leaves{" "}
            {shape(data.slice)}.
          </>
        ) : (
          <>The tokens of each text are averaged, which leaves {shape(data.slice)}.</>
        )}
      </p>
      <Box data={data} slice={data.pooling} />
      <DataTable
        class="stage"
        label="Features and labels"
        headers={["Text", ...range(4), "…", data.slice[1] - 1, "Label"]}
        rows={data.features.map((vector, row) => [
          row + 1,
          ...vector.slice(0, 4).map(number),
          "…",
          number(vector.at(-1)!),
          data.labels[row],
        ])}
      />
    </>
  );
}

function Box({ data, slice }: { data: Pipeline; slice: string | null }) {
  return (
    <div class="wide">
      <Canvas
        {...BOX}
        inputs={[data, slice]}
        label={`A tensor of ${shape(data.hidden)} numbers${slice ? `, of which ${shape(data.slice)} are kept` : ""}`}
        draw={(painter) => drawTensorBox(painter, data.hidden, slice)}
      />
    </div>
  );
}

/**
 * A tensor as a box: texts down, tokens across, width into the depth. `slice` marks what is kept: "cls" the first
 * token, "mean" all.
 */
function drawTensorBox(painter: Painter, sizes: readonly number[], slice: string | null): void {
  const { ink, muted, other, accent } = colors.get();
  const [texts, tokens, width] = sizes.map(count) as [string, string, string];
  const marked = slice === "cls" ? WIDTH / 8 : slice === "mean" ? WIDTH : 0;
  const [right, bottom] = [LEFT + WIDTH, TOP + HEIGHT];
  painter.rect(LEFT, TOP, WIDTH, HEIGHT, accent, 0.12);
  painter.rect(LEFT, TOP, marked, HEIGHT, other, 0.45);
  // The painter has no polygons: slanted lines fill the side that goes into the depth.
  for (let x = 0; x < marked; x += 2) painter.line(LEFT + x, TOP, LEFT + x + DEPTH, TOP - DEPTH, other, 0.3, 2);
  outline(painter, LEFT, TOP, WIDTH, HEIGHT, ink, 0.9, 1.2);
  const edges = [
    LEFT,
    TOP,
    LEFT + DEPTH,
    TOP - DEPTH,
    right,
    TOP,
    right + DEPTH,
    TOP - DEPTH,
    right,
    bottom,
    right + DEPTH,
    bottom - DEPTH,
  ];
  const back = [
    LEFT + DEPTH,
    TOP - DEPTH,
    right + DEPTH,
    TOP - DEPTH,
    right + DEPTH,
    TOP - DEPTH,
    right + DEPTH,
    bottom - DEPTH,
  ];
  painter.lines([...edges, ...back], ink, 0.9, false, 1.2);
  painter.lines(
    range(7).flatMap((column) => [LEFT + ((column + 1) * WIDTH) / 8, TOP, LEFT + ((column + 1) * WIDTH) / 8, bottom]),
    muted,
    0.4,
    false,
    1,
  );
  painter.text(`${texts} texts`, LEFT - 12, TOP + HEIGHT / 2, { align: "center", rotated: true });
  painter.text(`${tokens} tokens`, LEFT + WIDTH / 2, bottom + 14, { align: "center" });
  painter.text(`${width} numbers`, right + DEPTH + 8, TOP - DEPTH + 8);
  if (slice === "cls")
    painter.text("[:, 0, :]", LEFT + marked / 2, bottom + 30, { size: 12, align: "center", mono: true, color: other });
}

const spread = ({ mean, deviation }: RegressionScore) => `${mean.toFixed(1)} ± ${deviation.toFixed(1)}%`;

/** The bars: mean accuracy over the folds. */
const accuracies = ({ masked, unmasked }: Pipeline) => [
  { name: "always the most common label", value: masked.guess, text: `${masked.guess.toFixed(1)}%` },
  { name: "with mask", value: masked.mean, text: spread(masked) },
  { name: "without mask, as on the slides", value: unmasked.mean, text: spread(unmasked) },
];

function Score({ data }: { data: Pipeline }) {
  const { masked, unmasked } = data;
  const folds = (name: string, score: RegressionScore) => [
    name,
    ...score.folds.map((fold) => `${fold.toFixed(1)}%`),
    spread(score),
    `${score.accuracy.toFixed(1)}%`,
  ];
  return (
    <>
      <p>
        <strong>Accuracy {spread(masked)}</strong>, the mean and standard deviation over 5 folds: each text is tested
        once, by a classifier that was trained on the other four fifths.
      </p>
      <div class="bars">
        {accuracies(data).map(({ name, value, text }, number) => [
          <span key={name}>{name}</span>,
          <i
            key={`${name} bar`}
            class={["guess", "", "deck"][number]}
            style={{ width: `${value}%` }}
            aria-hidden="true"
          />,
          <strong key={`${name} value`}>{text}</strong>,
        ])}
      </div>
      <DataTable
        class="stage"
        label="Folds and one split"
        headers={[
          "",
          ...masked.folds.map((_, fold) => `fold ${fold + 1}`),
          "mean",
          `one split: ${count(masked.train)} to train, ${count(masked.test)} to test`,
        ]}
        rows={[folds("with mask", masked), folds("without mask", unmasked)]}
      />
      {masked.test < 100 && (
        <p class="muted">
          With {masked.test} test texts one correct answer changes the accuracy of the split by{" "}
          {(100 / masked.test).toFixed(1)} points: read the mean of the folds.
        </p>
      )}
    </>
  );
}
