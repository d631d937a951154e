// The logit lens: what each layer would predict at each position, as a table with layers down and positions across.
import { ButtonGroup, DataTable, Notes, ScrollRegion, Select, Token } from "../components";
import { count, percent, range, truncate, visible } from "../format";
import type { Painter } from "../painter";
import { currentRoute, integerParameter, onArrowKeys, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { LensPrediction } from "../types";
import type { Drawing, Table, View, ViewOf } from "../view";
import "./lens/lens.css";

type LensPayload = ViewOf<"lens">;
/** What the color of a cell shows: the probability of its own token, or of the final answer. */
type Shade = "token" | "answer";

const SHADES: Record<Shade, string> = { token: "the layer's own token", answer: "the final answer" };
const LABEL = 12; // characters of a token in a cell

interface Selection {
  readonly position: number;
  readonly layer: number;
  readonly shade: Shade;
}

function selectionOf(payload: LensPayload, { parameters }: Route): Selection {
  return {
    position: integerParameter(parameters, "at", payload.tokens.length, payload.position),
    layer: integerParameter(parameters, "layer", payload.layers.length, payload.layers.length - 1),
    shade: parameters["shade"] === "answer" ? "answer" : "token",
  };
}

const layerName = (layer: number) => (layer === 0 ? "0 (embeddings)" : `Layer ${layer}`);
const answerAt = ({ layers }: LensPayload, position: number) => layers.at(-1)!.predictions[position]!.candidates[0]!;
const shadeOf = (one: LensPrediction, shade: Shade) =>
  shade === "token" ? one.candidates[0]!.probability : one.probability;

/** The first layer from which on every layer has the final answer as its likeliest token. */
function decided({ layers }: LensPayload, position: number): number {
  let first = layers.length;
  while (first > 0 && layers[first - 1]!.predictions[position]!.rank === 1) first--;
  return first;
}

function Show({ payload }: { payload: LensPayload }) {
  const selection = selectionOf(payload, currentRoute.use());
  const { position, layer, shade } = selection;
  const select = (at: number, next: number) =>
    setParameters({
      at: String(Math.max(0, Math.min(payload.tokens.length - 1, at))),
      layer: String(Math.max(0, Math.min(payload.layers.length - 1, next))),
    });
  const onKeyDown = onArrowKeys(
    { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as const,
    ([across, down]) => select(position + across, layer + down),
  );
  const where = payload.predicts === "next" ? "after" : "at";
  return (
    <section class="lens" aria-label="Logit lens" onKeyDown={onKeyDown}>
      <Notes notes={payload.notes} />
      <div class="choices">
        <ButtonGroup
          title="Color: probability of"
          options={SHADES}
          value={shade}
          onSelect={(value) => setParameters({ shade: value === "token" ? "" : value })}
        />
        <Select
          label="Position"
          options={Object.fromEntries(payload.tokens.map((token, index) => [index, `${index} ${visible(token)}`]))}
          value={position}
          onSelect={(value) => setParameters({ at: value })}
        />
      </div>
      <div class="lens-split">
        <LensTable payload={payload} selection={selection} select={select} />
        <Details payload={payload} selection={selection} select={select} />
      </div>
      <p class="muted">
        Each layer's hidden state goes through the model's final norm and output head, as if it were the last layer; the
        last row is the model's own prediction of the token {where} each position. Press a cell, or use the arrow keys.
      </p>
    </section>
  );
}

function finding(payload: LensPayload, route: Route): string {
  const { position } = selectionOf(payload, route);
  const { token, probability } = answerAt(payload, position);
  const first = decided(payload, position);
  const place =
    payload.predicts === "next"
      ? `after “${payload.tokens[position]!.trim()}”`
      : payload.special[position] || payload.tokens[position] === "[MASK]"
        ? `at ${payload.tokens[position]}`
        : `at “${payload.tokens[position]!.trim()}”`;
  const since =
    first === 0
      ? "from the embeddings on"
      : first === payload.layers.length - 1
        ? "only in the last layer"
        : `from layer ${first} on`;
  return `${payload.model} predicts “${token.trim()}” ${place} (${percent(probability)}), settled ${since}.`;
}

interface PartProps {
  readonly payload: LensPayload;
  readonly selection: Selection;
  select(position: number, layer: number): void;
}

function LensTable({ payload, selection: { position, layer, shade }, select }: PartProps) {
  return (
    <ScrollRegion label="Predictions of every layer" class="lens-scroll">
      <table class="lens-table">
        <thead>
          <tr>
            <th scope="col">Layer</th>
            {payload.tokens.map((token, index) => (
              <th key={index} scope="col" dir="auto" class={payload.special[index] ? "muted" : ""}>
                {visible(token)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {payload.layers.map((row) => (
            <tr key={row.layer}>
              <th scope="row">{row.layer}</th>
              {row.predictions.map((one, index) => (
                <td
                  key={index}
                  style={{ "--strength": `${Math.round(70 * Math.sqrt(shadeOf(one, shade)))}%` }}
                  class={one.rank === 1 ? "lens-answer" : ""}
                >
                  <button
                    type="button"
                    dir="auto"
                    tabIndex={index === position && row.layer === layer ? 0 : -1}
                    aria-pressed={index === position && row.layer === layer}
                    title={
                      `${percent(one.candidates[0]!.probability)}; the final answer: rank ${count(one.rank)}, ` +
                      `${percent(one.probability)}`
                    }
                    onClick={() => select(index, row.layer)}
                  >
                    {truncate(visible(one.candidates[0]!.token), LABEL)}
                  </button>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollRegion>
  );
}

/** The candidates of the selected cell, and the rank of the final answer in every layer. */
function Details({ payload, selection: { position, layer }, select }: PartProps) {
  const found = payload.layers[layer]!.predictions[position]!;
  return (
    <div class="lens-details">
      <h3>
        {layerName(layer)}, position {position}
      </h3>
      <DataTable
        class="data-table lens-candidates"
        headers={["token", "probability"]}
        rows={found.candidates.map((one) => [
          visible(one.token),
          <>
            <span class="bar" style={{ width: `${100 * one.probability}%`, background: "var(--accent)" }} />
            {percent(one.probability)}
          </>,
        ])}
      />
      <h3>
        The final answer <Token text={visible(answerAt(payload, position).token)} /> in every layer
      </h3>
      <DataTable
        class="data-table lens-ranks"
        headers={["layer", "rank", "probability", "likeliest"]}
        rows={payload.layers.map(({ layer: number, predictions }) => {
          const one = predictions[position]!;
          return [
            number,
            count(one.rank),
            percent(one.probability),
            { content: visible(one.candidates[0]!.token), dir: "auto" },
          ];
        })}
        rowProps={(row) => ({ class: row === layer ? "named" : "", onClick: () => select(position, row) })}
      />
    </div>
  );
}

const [LEFT, TOP, ROW, CHARACTER] = [70, 44, 24, 7.4];

function drawing(payload: LensPayload, route: Route): Drawing {
  const { shade } = selectionOf(payload, route);
  const text = (token: string) => truncate(visible(token), LABEL);
  const widths = payload.tokens.map(
    (token, index) =>
      12 +
      CHARACTER *
        Math.max(
          ...[token, ...payload.layers.map((one) => one.predictions[index]!.candidates[0]!.token)].map(
            (one) => [...text(one)].length,
          ),
        ),
  );
  const lefts = widths.map((_, index) => LEFT + widths.slice(0, index).reduce((a, b) => a + b, 0));
  return {
    width: LEFT + widths.reduce((a, b) => a + b, 0) + 16,
    height: TOP + ROW * payload.layers.length + 36,
    draw(painter: Painter) {
      const { accent, muted, rule } = colors.get();
      const middle = (row: number) => TOP + ROW * (row + 0.5);
      painter.text("Logit lens: what each layer would predict", 16, 12, { bold: true });
      payload.tokens.forEach((token, index) =>
        painter.text(text(token), lefts[index]! + widths[index]! / 2, TOP - 12, {
          mono: true,
          size: 12,
          align: "center",
          color: muted,
        }),
      );
      for (const { layer, predictions } of payload.layers) {
        painter.text(`layer ${layer}`, LEFT - 8, middle(layer), { align: "right", size: 12, color: muted });
        predictions.forEach((one, index) => {
          painter.rect(
            lefts[index]! + 1,
            TOP + ROW * layer + 1,
            widths[index]! - 2,
            ROW - 2,
            accent,
            0.7 * Math.sqrt(shadeOf(one, shade)),
          );
          painter.text(text(one.candidates[0]!.token), lefts[index]! + widths[index]! / 2, middle(layer), {
            mono: true,
            size: 12,
            align: "center",
            bold: one.rank === 1,
          });
        });
      }
      const y = TOP + ROW * payload.layers.length + 18;
      painter.line(LEFT, y - 14, LEFT + widths.reduce((a, b) => a + b, 0), y - 14, rule);
      painter.text(`Darker: a higher probability of ${SHADES[shade]}. Bold: the final answer.`, LEFT, y, {
        size: 12,
        color: muted,
      });
    },
  };
}

function table(payload: LensPayload): Table {
  const places = range(payload.layers[0]!.predictions[0]!.candidates.length);
  return {
    headers: [
      "layer",
      "position",
      "token",
      "answer",
      "answer_rank",
      "answer_probability",
      ...places.flatMap((n) => [`token_${n + 1}`, `probability_${n + 1}`]),
    ],
    rows: payload.layers.flatMap(({ layer, predictions }) =>
      predictions.map((one, position) => [
        layer,
        position,
        payload.tokens[position]!,
        answerAt(payload, position).token,
        one.rank,
        one.probability,
        ...one.candidates.flatMap(({ token, probability }) => [token, probability]),
      ]),
    ),
  };
}

export const lens: View<LensPayload> = {
  name: "lens",
  title: "Logit lens",
  about: "What would each layer predict if it were the last? See where in the model an answer appears.",
  group: "inside",
  examples: [
    { label: "The capital of France", values: { text: "The capital of France is _." }, model: "regard-bert" },
    { label: "Snow", values: { text: "In winter the fields are _ with snow." }, model: "regard-bert" },
    { label: "A band", values: { text: "The band released its first _ in 1995." }, model: "regard-bert" },
    { label: "The ocean (GPT)", values: { text: "The river flows into the Atlantic" }, model: "regard-gpt" },
    { label: "A room (GPT)", values: { text: "She opened the door and went into the" }, model: "regard-gpt" },
  ],
  travels: { text: "text", layer: true },
  Thumbnail: thumbnails.lens,
  finding,
  verb: "lens",
  excludes: ["translation", "image", "encoder-decoder", "recurrent", "sentence-embedding"],
  prefers: ["masked-lm"],
  fields: [{ name: "text", label: "Text (for a BERT, _ is a blank)", start: "The capital of France is _." }],
  Show,
  drawing,
  table,
};
