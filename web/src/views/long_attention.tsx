// The attention of one head over a long text: an overview of the whole map, and the selected part of it in full. The server sends
// queries, keys and the normalizer of each row; the page computes only the tile that is shown, so its cost does not grow with the text.
import { useMemo } from "preact/hooks";
import { floats } from "../binary";
import { DataTable, Notes } from "../components";
import { count, fixedPercent, visible } from "../format";
import { HeatMap, squareLayout } from "../heat_map";
import { outline, type Painter } from "../painter";
import { currentRoute, integerParameter, onArrowKeys, type Route, setParameters } from "../route";
import { thumbnails } from "../thumbnails";
import { colors } from "../theme";
import type { View, ViewOf } from "../view";

type LongAttentionPayload = ViewOf<"long_attention">;

const TILE = 256; // tokens of a side
const STEP = 128; // of an arrow key

/** The first row and column of the tile; it begins with the strongest link. */
function tileOf({ tokens, strongest }: LongAttentionPayload, { parameters }: Route): readonly [number, number] {
  const start = (at: number) => clamp(at - TILE / 2, tokens.length);
  return [
    integerParameter(parameters, "row", tokens.length, start(strongest[0]?.row ?? 0)),
    integerParameter(parameters, "column", tokens.length, start(strongest[0]?.column ?? 0)),
  ];
}

const clamp = (at: number, length: number) => Math.max(0, Math.min(length - TILE, Math.round(at)));

/** The weights of a tile in row-major order. */
export function tileWeights(payload: LongAttentionPayload, row: number, column: number): { readonly rows: number; readonly columns: number; readonly weights: Float32Array } {
  const { tokens, causal, window, scale } = payload;
  const [query, key, normalizer] = [floats(payload.query), floats(payload.key), floats(payload.normalizer)];
  const width = query.length / tokens.length;
  const [rows, columns] = [Math.min(TILE, tokens.length - row), Math.min(TILE, tokens.length - column)];
  const weights = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const distance = row + i - column - j;
      if ((causal && distance < 0) || (window !== null && Math.abs(distance) > window)) continue;
      let sum = 0;
      for (let d = 0; d < width; d++) sum += query[(row + i) * width + d]! * key[(column + j) * width + d]!;
      weights[i * columns + j] = Math.exp(scale * sum - normalizer[row + i]!);
    }
  }
  return { rows, columns, weights };
}

function Show({ payload }: { payload: LongAttentionPayload }) {
  const { tokens, cell, strongest } = payload;
  const [row, column] = tileOf(payload, currentRoute.use());
  const { rows, columns, weights } = useMemo(() => tileWeights(payload, row, column), [payload, row, column]);
  const overview = useMemo(() => floats(payload.overview), [payload]);
  const side = Math.sqrt(overview.length);
  const select = (toRow: number, toColumn: number) => setParameters({ row: String(clamp(toRow, tokens.length)), column: String(clamp(toColumn, tokens.length)) });
  const keys = { ArrowUp: [-STEP, 0], ArrowDown: [STEP, 0], ArrowLeft: [0, -STEP], ArrowRight: [0, STEP] } as const;
  const onKeyDown = onArrowKeys(keys, ([down, across]) => select(row + down, column + across));
  const blank = (length: number) => Array<string>(length).fill("");
  const name = (at: number) => `${at} “${visible(tokens[at]!)}”`;
  return (
    <section aria-label="Attention over a long text" class="long-attention" onKeyDown={onKeyDown}>
      <Notes notes={payload.notes} class="muted" />
      <div class="figures">
        <figure>
          <figcaption>The whole map: the largest weight of every {cell === 1 ? "token" : `${cell} × ${cell} tokens`}. Press to see a part in full.</figcaption>
          <HeatMap
            size={[side, side]}
            layout={(room) => squareLayout(blank(side), blank(side), Math.min(room, 520), 4)}
            draw={(painter, layout) => {
              painter.matrix(overview, side, layout.left, layout.top, layout.cell[0] * side, layout.cell[1] * side, colors.get().accent);
              const [size, dot] = [layout.cell[0] / cell, layout.cell[0] * side];
              outline(painter, layout.left, layout.top, dot, dot, colors.get().rule);
              outline(painter, layout.left + column * size, layout.top + row * size, columns * size, rows * size, colors.get().other);
            }}
            inputs={[overview, row, column]}
            label={`Attention of layer ${payload.layer}, head ${payload.head}: the whole map`}
            describe={(at) => (at ? `rows from ${name(at[0] * cell)}, columns from ${name(at[1] * cell)}: at most ${fixedPercent(overview[at[0] * side + at[1]]!, 1)}` : "Rows attend to columns.")}
            onPress={([i, j]) => select(i * cell - TILE / 2, j * cell - TILE / 2)}
          />
        </figure>
        <figure>
          <figcaption>
            Rows {row} to {row + rows - 1}, columns {column} to {column + columns - 1}: every weight
          </figcaption>
          <HeatMap
            size={[rows, columns]}
            layout={(room) => squareLayout(blank(rows), blank(columns), Math.min(room, 520), 24)}
            draw={(painter, layout) => {
              painter.matrix(weights, columns, layout.left, layout.top, layout.cell[0] * columns, layout.cell[1] * rows, colors.get().accent);
              outline(painter, layout.left, layout.top, layout.cell[0] * columns, layout.cell[1] * rows, colors.get().rule);
            }}
            inputs={[weights, columns]}
            label={`Attention of rows ${row} to ${row + rows - 1}, columns ${column} to ${column + columns - 1}`}
            describe={(at) => (at ? `${name(row + at[0])} attends to ${name(column + at[1])}: ${fixedPercent(weights[at[0] * columns + at[1]]!, 2)}` : "Point at a cell; the arrow keys move the part.")}
          />
        </figure>
      </div>
      <DataTable
        label="Strongest links"
        caption="Strongest links between different words, without the first token"
        headers={["from", "token", "to", "token", "weight"]}
        rows={strongest.map((link) => [link.row, visible(tokens[link.row]!), link.column, visible(tokens[link.column]!), fixedPercent(link.weight, 1)])}
        rowProps={(at) => ({ onClick: () => select(strongest[at]!.row - TILE / 2, strongest[at]!.column - TILE / 2) })}
      />
    </section>
  );
}

const MARGIN = 16;

const SPEECH = `Fourscore and seven years ago our fathers brought forth on this continent a new nation, conceived in liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great battlefield of that war. We have come to dedicate a portion of that field, as a final resting place for those who here gave their lives that that nation might live. It is altogether fitting and proper that we should do this.`;

export const longAttention: View<LongAttentionPayload> = {
  name: "long_attention",
  title: "Long attention",
  about: "The attention of one head over a text of up to 8,192 tokens: the whole map at a glance, and any part of it in full.",
  group: "inside",
  examples: [
    { label: "A speech", values: { text: SPEECH, layer: "5", head: "3" }, model: "regard-gpt" },
    { label: "The token before", values: { text: SPEECH, layer: "5", head: "0" }, model: "regard-gpt" },
    { label: "The last layer", values: { text: SPEECH, layer: "-1", head: "0" }, model: "regard-gpt" },
    { label: "In both directions", values: { text: SPEECH, layer: "4", head: "3" }, model: "regard-bert" },
  ],
  Thumbnail: thumbnails.longAttention,
  finding: ({ strongest: [link], tokens, layer, head, model }) =>
    link ? `Of ${count(tokens.length)} tokens, “${tokens[link.row]!.trim()}” attends most to “${tokens[link.column]!.trim()}” (${fixedPercent(link.weight, 0)}) in layer ${layer}, head ${head} of ${model}` : "",
  verb: "long_attention",
  excludes: ["translation", "image", "encoder-decoder", "recurrent"],
  fields: [
    { name: "text", label: "Text", lines: 5, start: SPEECH },
    { name: "layer", label: "Layer", start: "5" },
    { name: "head", label: "Head", start: "3" },
  ],
  Show,
  drawing: (payload) => {
    const overview = floats(payload.overview);
    const side = Math.sqrt(overview.length);
    const size = Math.max(256, side);
    return {
      width: size + 2 * MARGIN,
      height: size + 2 * MARGIN + 24,
      draw(painter: Painter) {
        painter.text(`${payload.model}: layer ${payload.layer}, head ${payload.head}, ${count(payload.tokens.length)} tokens`, MARGIN, MARGIN, { bold: true });
        painter.matrix(overview, side, MARGIN, MARGIN + 20, size, size, colors.get().accent);
        outline(painter, MARGIN, MARGIN + 20, size, size, colors.get().rule);
      },
    };
  },
  table: ({ strongest, tokens }) => ({
    headers: ["row", "column", "query_token", "key_token", "weight"],
    rows: strongest.map((link) => [link.row, link.column, tokens[link.row]!, tokens[link.column]!, link.weight]),
  }),
};
