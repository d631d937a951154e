// Corpus search by head: the texts in which one head attends most strongly from one token to another, and all scores.
import { Canvas, useWidth } from "../canvas";
import { Notes, Token } from "../components";
import { count, decimal, fixedPercent, visible } from "../format";
import { MARGIN, type Painter, type Part, stack, textPart, tokenStripPart } from "../painter";
import { formatRoute } from "../route";
import { colors, weightBackground } from "../theme";
import { thumbnails } from "../thumbnails";
import type { ActivatingText } from "../types";
import type { View, ViewOf } from "../view";
import "./activations/activations.css";
import { OpenFile } from "./embeddings/open_file";

type ActivationsPayload = ViewOf<"activations">;

const PATTERNS: Readonly<Record<string, string>> = {
  any: "any other token",
  previous: "the token before",
  next: "the token after",
  same: "another occurrence of the same token",
};
const HISTOGRAM = 84; // pixels

function Show({ payload }: { payload: ActivationsPayload }) {
  const { texts, scored, mean } = payload;
  const [element, width] = useWidth<HTMLDivElement>();
  return (
    <section aria-label="Corpus search by head" class="activations">
      <Notes notes={payload.notes} />
      <OpenFile view="activations" field="source" />
      <ol class="activations-texts">
        {texts.map((one) => (
          <li key={one.line}>
            <Tokens one={one} />
            <p class="muted">
              line {count(one.line)}: <Token text={visible(one.tokens[one.query]!)} />
              {" → "}
              <Token text={visible(one.tokens[one.key]!)} />
              <b class="activations-weight">{` ${decimal(one.weight)} `}</b>
              <a href={attentionRoute(payload, one)}>its attention</a>
            </p>
          </li>
        ))}
      </ol>
      <h3>
        Scores of {count(scored)} texts, mean {mean.toFixed(3)}
      </h3>
      <div ref={element}>
        {width > 0 && (
          <Canvas
            width={Math.min(640, width)}
            height={HISTOGRAM + 18}
            inputs={[payload]}
            label={`Histogram of the scores of ${scored} texts, from 0 to 1`}
            draw={(painter) => drawHistogram(painter, payload, 0, 0, Math.min(640, width))}
          />
        )}
      </div>
      <p class="muted">
        The score of a text is the largest weight of this head from one token to {PATTERNS[payload.pattern]}
        {payload.min_distance > 1 && ` at least ${payload.min_distance} tokens away`}; special tokens and attention of a
        token to itself do not count. The outlined token attends to the shaded ones.
      </p>
    </section>
  );
}

function finding({ model, layer, head, texts, read }: ActivationsPayload): string {
  const first = texts[0]!;
  return (
    `Layer ${layer}, head ${head} of ${model} attends most strongly from “${first.tokens[first.query]!.trim()}” to ` +
    `“${first.tokens[first.key]!.trim()}” (${first.weight.toFixed(3)}) in line ${first.line} of ${count(read)}.`
  );
}

/** The attention view of a text at this head, with its query selected. */
function attentionRoute({ model, layer, head }: ActivationsPayload, { text, query }: ActivatingText): string {
  return formatRoute({
    view: "attention",
    parameters: { text, model, layer: String(layer), heads: String(head), lock: `r${query}` },
  });
}

function Tokens({ one: { tokens, special, query, weights } }: { one: ActivatingText }) {
  return (
    <p class="activations-tokens" dir="auto">
      {tokens.map((token, index) => (
        <span
          key={index}
          class={[index === query && "query", special[index] && "muted"].filter(Boolean).join(" ")}
          title={fixedPercent(weights[index]!, 1)}
          style={{ background: weightBackground(weights[index]!) }}
        >
          {token}
        </span>
      ))}
    </p>
  );
}

function drawHistogram(painter: Painter, { histogram }: ActivationsPayload, x: number, y: number, width: number): void {
  const { accent, muted, rule } = colors.get();
  const most = Math.max(...histogram);
  const bar = width / histogram.length;
  histogram.forEach((found, bin) => {
    const height = (HISTOGRAM - 4) * (found / most);
    painter.rect(x + bin * bar + 1, y + HISTOGRAM - height, bar - 2, height, accent, 0.8);
  });
  painter.line(x, y + HISTOGRAM, x + width, y + HISTOGRAM, rule);
  for (const [value, align] of [
    [0, "left"],
    [0.5, "center"],
    [1, "right"],
  ] as const)
    painter.text(String(value), x + value * width, y + HISTOGRAM + 10, { size: 11, align, color: muted });
}

const WIDTH = 860;

function drawing(payload: ActivationsPayload) {
  const { texts, layer, head } = payload;
  const parts: Part[] = [
    textPart(
      `Layer ${layer}, head ${head}: the strongest attention to ${PATTERNS[payload.pattern]} among ` +
        `${count(payload.read)} texts`,
      { bold: true },
      28,
    ),
    ...texts.flatMap((one): Part[] => [
      textPart(
        `${one.weight.toFixed(3)}  line ${one.line}: ${visible(one.tokens[one.query]!)} → ` +
          `${visible(one.tokens[one.key]!)}`,
        { size: 12, color: colors.get().muted },
        20,
      ),
      tokenStripPart(one.tokens, one.weights, WIDTH),
    ]),
    [HISTOGRAM + 24, (painter, y) => drawHistogram(painter, payload, MARGIN, y, WIDTH - 2 * MARGIN)],
  ];
  return stack(parts, WIDTH);
}

const TEXTS = `The animal did not cross the street because it was too tired.
The king told the queen that he would leave his castle.
She gave her brother the book that he had lost.
The river flows through the city and then into the sea.
He said that the train was late, and the train was late.
The children saw the dog, and the dog saw them.
They built the bridge in 1890 and rebuilt it in 1950.
A teacher who knows her students helps them.
The old man opened the door and closed it again.
It rained for days, so the match was moved to Monday.`;

export const activations: View<ActivationsPayload> = {
  name: "activations",
  title: "Corpus search",
  about:
    "Which texts make one attention head fire most? The strongest pair of tokens in every text, and the texts in " +
    "order.",
  group: "inside",
  Thumbnail: thumbnails.activations,
  finding,
  examples: [
    {
      label: "Determiner to noun",
      values: { source: TEXTS, layer: "5", head: "2", pattern: "any", top: "5" },
      model: "regard-bert",
    },
    {
      label: "The next token",
      values: { source: TEXTS, layer: "4", head: "3", pattern: "next", top: "5" },
      model: "regard-bert",
    },
    {
      label: "The token before (GPT)",
      values: { source: TEXTS, layer: "5", head: "0", pattern: "previous", top: "5" },
      model: "regard-gpt",
    },
    {
      label: "The same word again",
      values: { source: TEXTS, layer: "5", head: "1", pattern: "same", top: "5" },
      model: "regard-bert",
    },
  ],
  verb: "activations",
  excludes: ["translation", "image", "encoder-decoder", "recurrent"],
  fields: [
    { name: "source", label: "Texts, one per line", lines: 5, start: TEXTS },
    { name: "layer", label: "Layer", start: "5" },
    { name: "head", label: "Head", start: "2" },
    { name: "pattern", label: "Attention to (any, previous, next or same)", start: "any", fold: true },
    { name: "top", label: "Texts to list", start: "5", fold: true },
  ],
  Show,
  drawing,
  table: ({ texts }) => ({
    headers: ["line", "text", "weight", "query", "query_token", "key", "key_token"],
    rows: texts.map((one) => [
      one.line,
      one.text,
      one.weight,
      one.query,
      one.tokens[one.query]!,
      one.key,
      one.tokens[one.key]!,
    ]),
  }),
};
