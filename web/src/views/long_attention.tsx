// The attention of one head over a long text: an overview of the whole map, and the selected part of it in full. The
// server sends queries, keys and the normalizer of each row; a worker computes only the tiles that are shown, so the
// cost does not grow with the text.
import { useMemo } from "preact/hooks";
import { floats } from "../binary";
import { ButtonGroup, DataTable, Notes } from "../components";
import { count, fixedPercent, visible } from "../format";
import { HeatMap, squareLayout } from "../heat_map";
import { outline, type Painter } from "../painter";
import { currentRoute, integerParameter, onArrowKeys, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { View, ViewOf } from "../view";
import { useTiles } from "./long_attention/tile_source";
import { TILE, tileCount } from "./long_attention/tiles";
import "./long_attention/long_attention.css";

type LongAttentionPayload = ViewOf<"long_attention">;

const MAX_TILES = 8; // on a side; a multiple of it as width puts the edges of tiles on pixels
const SIZES = [TILE, 2 * TILE, 4 * TILE, 8 * TILE]; // tokens of a side of the part

/** The first row and column of the part, and its size; it begins with the strongest link. */
function partOf(
  { tokens, strongest }: LongAttentionPayload,
  { parameters }: Route,
): readonly [row: number, column: number, size: number] {
  const size = SIZES.find((one) => String(one) === parameters["size"] && one <= tokens.length) ?? TILE;
  const start = (name: "row" | "column") =>
    clamp(
      integerParameter(parameters, name, tokens.length, (strongest[0]?.[name] ?? 0) - size / 2),
      tokens.length,
      size,
    );
  return [start("row"), start("column"), size];
}

const clamp = (at: number, length: number, size: number) => Math.max(0, Math.min(length - size, Math.round(at)));

function Show({ payload }: { payload: LongAttentionPayload }) {
  const { tokens, cell, strongest } = payload;
  const [row, column, size] = partOf(payload, currentRoute.use());
  const [rows, columns] = [Math.min(size, tokens.length - row), Math.min(size, tokens.length - column)];
  const tiles = useTiles(payload, row, column, size);
  const weightAt = (i: number, j: number) => {
    const tile = tiles.find(
      (one) => i >= one.row && i < one.row + one.rows && j >= one.column && j < one.column + one.columns,
    );
    return tile?.weights[(i - tile.row) * tile.columns + j - tile.column];
  };
  const overview = useMemo(() => floats(payload.overview), [payload]);
  const side = Math.sqrt(overview.length);
  const select = (toRow: number, toColumn: number, tokensOfSide = size) =>
    setParameters({
      row: String(clamp(toRow, tokens.length, tokensOfSide)),
      column: String(clamp(toColumn, tokens.length, tokensOfSide)),
      size: tokensOfSide === TILE ? "" : String(tokensOfSide),
    });
  const step = size / 2;
  const keys = { ArrowUp: [-step, 0], ArrowDown: [step, 0], ArrowLeft: [0, -step], ArrowRight: [0, step] } as const;
  const onKeyDown = onArrowKeys(keys, ([down, across]) => select(row + down, column + across));
  const sizes = SIZES.filter((one) => one <= tokens.length);
  const blank = (length: number) => Array<string>(length).fill("");
  const name = (at: number) => `${at} “${visible(tokens[at]!)}”`;
  return (
    <section aria-label="Attention over a long text" class="long-attention" onKeyDown={onKeyDown}>
      <Notes notes={payload.notes} class="muted" />
      {sizes.length > 1 && (
        <div class="choices">
          <ButtonGroup
            title="Tokens of the part"
            options={sizes.map((one) => [String(one), count(one)] as const)}
            value={String(size)}
            onSelect={(value) =>
              select(row + (size - Number(value)) / 2, column + (size - Number(value)) / 2, Number(value))
            }
          />
        </div>
      )}
      <div class="figures">
        {tokens.length > TILE && (
          <figure>
            <figcaption>
              The whole map{cell > 1 && `: the largest weight of every ${cell} × ${cell} tokens`}. Press to see a part
              in full.
            </figcaption>
            <HeatMap
              size={[side, side]}
              layout={(room) => squareLayout(blank(side), blank(side), Math.min(room, 520), 4)}
              draw={(painter, layout) => {
                painter.matrix(
                  overview,
                  side,
                  layout.left,
                  layout.top,
                  layout.cell[0] * side,
                  layout.cell[1] * side,
                  colors.get().accent,
                );
                const [token, whole] = [layout.cell[0] / cell, layout.cell[0] * side];
                outline(painter, layout.left, layout.top, whole, whole, colors.get().rule);
                outline(
                  painter,
                  layout.left + column * token,
                  layout.top + row * token,
                  columns * token,
                  rows * token,
                  colors.get().other,
                );
              }}
              inputs={[overview, row, column, size]}
              label={`Attention of layer ${payload.layer}, head ${payload.head}: the whole map`}
              describe={(at) =>
                at
                  ? `rows from ${name(at[0] * cell)}, columns from ${name(at[1] * cell)}: at most ` +
                    `${fixedPercent(overview[at[0] * side + at[1]]!, 1)}`
                  : "Rows attend to columns."
              }
              onPress={([i, j]) => select(i * cell - step, j * cell - step)}
            />
          </figure>
        )}
        <figure class="part" aria-busy={tiles.length < tileCount(rows, columns)}>
          <figcaption>
            Rows {row} to {row + rows - 1}, columns {column} to {column + columns - 1}:{" "}
            {size > 2 * TILE ? "the largest weight of each pixel" : "every weight"}
          </figcaption>
          <HeatMap
            size={[rows, columns]}
            layout={(room) =>
              squareLayout(blank(rows), blank(columns), Math.floor(Math.min(room, 520) / MAX_TILES) * MAX_TILES, 24)
            }
            draw={(painter, layout) => {
              const [width, height] = layout.cell;
              for (const tile of tiles)
                painter.matrix(
                  tile.weights,
                  tile.columns,
                  layout.left + (tile.column - column) * width,
                  layout.top + (tile.row - row) * height,
                  width * tile.columns,
                  height * tile.rows,
                  colors.get().accent,
                );
              outline(
                painter,
                layout.left,
                layout.top,
                layout.cell[0] * columns,
                layout.cell[1] * rows,
                colors.get().rule,
              );
            }}
            inputs={[tiles, row, column, size]}
            label={`Attention of rows ${row} to ${row + rows - 1}, columns ${column} to ${column + columns - 1}`}
            describe={(at) => {
              if (!at)
                return (
                  "Rows attend to columns. Point at a " +
                  `cell${tokens.length > TILE ? "; the arrow keys move the part" : ""}.`
                );
              const weight = weightAt(row + at[0], column + at[1]);
              return (
                `${name(row + at[0])} attends to ${name(column + at[1])}: ` +
                `${weight === undefined ? "…" : fixedPercent(weight, 2)}`
              );
            }}
          />
        </figure>
      </div>
      <DataTable
        label="Strongest links"
        caption="Strongest links between different words, without the first token"
        headers={["from", "token", "to", "token", "weight"]}
        rows={strongest.map((link) => [
          link.row,
          visible(tokens[link.row]!),
          link.column,
          visible(tokens[link.column]!),
          fixedPercent(link.weight, 1),
        ])}
        rowProps={(at) => ({ onClick: () => select(strongest[at]!.row - step, strongest[at]!.column - step) })}
      />
    </section>
  );
}

const MARGIN = 16;

const SPEECH =
  "Fourscore and seven years ago our fathers brought forth on this continent a new nation, conceived in liberty, " +
  "and dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, " +
  "testing whether that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great " +
  "battlefield of that war. We have come to dedicate a portion of that field, as a final resting place for those " +
  "who here gave their lives that that nation might live. It is altogether fitting and proper that we should do " +
  "this. But, in a larger sense, we cannot dedicate, we cannot consecrate, we cannot hallow this ground. The brave " +
  "men, living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The " +
  "world will little note, nor long remember what we say here, but it can never forget what they did here. It is " +
  "for us the living, rather, to be dedicated here to the unfinished work which they who fought here have thus far " +
  "so nobly advanced. It is rather for us to be here dedicated to the great task remaining before us: that from " +
  "these honored dead we take increased devotion to that cause for which they gave the last full measure of " +
  "devotion; that we here highly resolve that these dead shall not have died in vain; that this nation, under God, " +
  "shall have a new birth of freedom; and that government of the people, by the people, for the people, shall not " +
  "perish from the earth.";

export const longAttention: View<LongAttentionPayload> = {
  name: "long_attention",
  title: "Long attention",
  about:
    "The attention of one head over a text of up to 8,192 tokens: the whole map at a glance, and any part of it " +
    "in full.",
  group: "inside",
  examples: [
    { label: "A speech", values: { text: SPEECH, layer: "5", head: "3" }, model: "regard-gpt" },
    { label: "The token before", values: { text: SPEECH, layer: "5", head: "0" }, model: "regard-gpt" },
    { label: "The last layer", values: { text: SPEECH, layer: "-1", head: "0" }, model: "regard-gpt" },
    { label: "In both directions", values: { text: SPEECH, layer: "4", head: "3" }, model: "regard-bert" },
  ],
  Thumbnail: thumbnails.longAttention,
  finding: ({ strongest: [link], tokens, layer, head, model }) =>
    link
      ? `Of ${count(tokens.length)} tokens, “${tokens[link.row]!.trim()}” attends most to ` +
        `“${tokens[link.column]!.trim()}” (${fixedPercent(link.weight, 0)}) in layer ${layer}, head ${head} of ` +
        `${model}`
      : "",
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
        painter.text(
          `${payload.model}: layer ${payload.layer}, head ${payload.head}, ${count(payload.tokens.length)} tokens`,
          MARGIN,
          MARGIN,
          { bold: true },
        );
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
