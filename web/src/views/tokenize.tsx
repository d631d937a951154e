// Tokens: what a tokenizer makes of a text, and the embeddings that a model adds up for each token.
import { Canvas } from "../canvas";
import { DataTable, Notes, ScrollRegion, Select } from "../components";
import { count, decimal, largestMagnitude, plural, range, slice, truncate, visible } from "../format";
import { type Painter, translated } from "../painter";
import { currentRoute, integerParameter, onArrowKeys, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { InputToken, TokenizedText } from "../types";
import type { View, ViewOf } from "../view";
import "./tokenize/tokenize.css";

type TokensPayload = ViewOf<"tokenize">;

const SEGMENTS = ["A", "B"];
const SKIT = "Let's stick to improvisation in this skit";
const CELL = 9; // pixels of one number of an embedding
const ROW = 22;
const LEFT = 150;

function Show({ payload }: { payload: TokensPayload }) {
  const { number, text, selected } = selectionOf(payload, currentRoute.use());
  const select = (token: number) =>
    setParameters({ token: String(Math.max(0, Math.min(text.tokens.length - 1, token))) });
  const onKeyDown = onArrowKeys({ ArrowLeft: -1, ArrowRight: 1 }, (step) => select(selected + step));
  const token = text.tokens[selected];
  return (
    <section aria-label="Tokens">
      <Notes notes={payload.notes} />
      <p>
        {plural(payload.num_tokens, "token")} of the {count(payload.vocab_size)} in the vocabulary of {payload.source}
        {payload.num_texts > 1 &&
          `; ${count(payload.num_texts)} texts, of which number ${count(payload.longest_text + 1)} is the longest ` +
            `with ${plural(payload.longest, "token")}`}
        {payload.max_length !== null && `. The model reads up to ${count(payload.max_length)} tokens`}.
      </p>
      {payload.texts.length > 1 && (
        <Select
          label="Text"
          options={payload.texts.map(
            (one, index) => [String(index), `${index + 1}. ${truncate(one.text, 80)} (${one.tokens.length})`] as const,
          )}
          value={number}
          onSelect={(value) => setParameters({ at: value, token: "" })}
        />
      )}
      <ol class="tokens-of" aria-label="Tokens with their ids" onKeyDown={onKeyDown}>
        {text.tokens.map((one, index) => (
          <li key={index}>
            <button type="button" class={kindOf(one)} aria-pressed={index === selected} onClick={() => select(index)}>
              <bdi>{visible(one.token)}</bdi>
              <small>{one.id}</small>
            </button>
          </li>
        ))}
      </ol>
      {token && (
        <>
          <SourceText name="A" text={text.text} token={token.segment === 0 || text.pair === null ? token : null} />
          {text.pair !== null && <SourceText name="B" text={text.pair} token={token.segment === 1 ? token : null} />}
          <p class="muted">{describe(token, selected)}</p>
        </>
      )}
      {text.embeddings.length > 0 && <Embeddings text={text} selected={selected} />}
      <h2>All tokens</h2>
      <DataTable
        label="All tokens"
        headers={["position", "token", "id", "segment", "characters", "text"]}
        rows={text.tokens.map((one, index) => [
          index,
          visible(one.token),
          one.id,
          SEGMENTS[one.segment],
          span(one),
          charactersOf(text, one),
        ])}
      />
    </section>
  );
}

function SourceText({ name, text, token }: { name: string; text: string; token: InputToken | null }) {
  const [start, end] = [token?.start ?? 0, token?.end ?? 0];
  return (
    <p class="source-text" dir="auto">
      <span class="muted">{name}: </span>
      {slice(text, 0, start)}
      {end > start && <mark>{slice(text, start, end)}</mark>}
      {slice(text, end)}
    </p>
  );
}

function Embeddings({ text, selected }: { text: TokenizedText; selected: number }) {
  const { width, height, draw } = embeddingsDrawing(text, selected);
  const shown = text.embeddings[0]!.values[0]!.length;
  return (
    <>
      <h2>
        Embeddings:{" "}
        {text.embeddings
          .filter(isPart)
          .map((row) => row.name)
          .join(" + ")}
      </h2>
      <p>
        Each token gets the sum of these vectors. The drawing has the first {shown} numbers of each; the table those of
        the selected token, <bdi class="token">{text.tokens[selected]?.token}</bdi>, with the length of the whole
        vector.
      </p>
      <ScrollRegion label="Embeddings of all tokens, a drawing">
        <Canvas
          width={width}
          height={height}
          inputs={[text, selected]}
          draw={draw}
          label={`The first ${shown} numbers of the ${text.embeddings.map((row) => row.name).join(", ")} of each token`}
        />
      </ScrollRegion>
      <DataTable
        label="Embeddings of the selected token"
        headers={["vector", ...range(shown), "…", "length"]}
        rows={text.embeddings.map((row) => [
          row.name,
          ...row.values[selected]!.map((value) => decimal(value)),
          "…",
          decimal(row.norms[selected]!),
        ])}
      />
    </>
  );
}

/** A block of signed cells for each token and vector; orange is negative. */
function embeddingsDrawing(text: TokenizedText, selected: number | null) {
  const rows = text.embeddings;
  const dimensions = rows[0]?.values[0]?.length ?? 0;
  const block = dimensions * CELL + 8;
  const label = Math.max(...text.tokens.map((token) => token.token.length)) > block / 8;
  const top = label ? 100 : 26;
  const draw = (painter: Painter) => {
    const { accent, other, ink, muted } = colors.get();
    text.tokens.forEach((token, index) => {
      const x = LEFT + index * block;
      const style = { mono: true, size: 12, bold: index === selected, color: token.special ? muted : ink };
      painter.text(truncate(visible(token.token), 12), label ? x + block / 2 : x, top - 10, {
        ...style,
        rotated: label,
      });
    });
    rows.forEach((row, line) => {
      const y = top + line * (ROW + 8) + (isPart(row) ? 0 : 8);
      const largest = largestMagnitude(...row.values); // each kind of vector has its own scale
      painter.text(
        `${line === 0 ? "" : isPart(row) ? "+ " : row.name === "sum" ? "= " : ""}${row.name}`,
        LEFT - 10,
        y + ROW / 2,
        { align: "right", size: 12 },
      );
      row.values.forEach((vector, index) =>
        vector.forEach((value, column) =>
          painter.rect(
            LEFT + index * block + column * CELL,
            y,
            CELL - 1,
            ROW,
            value < 0 ? other : accent,
            Math.min(1, Math.abs(value) / largest),
          ),
        ),
      );
    });
  };
  return { width: LEFT + text.tokens.length * block, height: top + rows.length * (ROW + 8) + 8, draw };
}

const isPart = (row: { readonly name: string }) => !row.name.startsWith("sum");
const kindOf = (token: InputToken) => (token.special ? "special" : token.segment ? "second" : "");
const span = (token: InputToken) => (token.start === null ? "" : `${token.start}–${token.end}`);
const charactersOf = (text: TokenizedText, token: InputToken) =>
  token.start === null
    ? ""
    : slice(token.segment && text.pair !== null ? text.pair : text.text, token.start, token.end ?? undefined);

function describe(token: InputToken, position: number): string {
  const where = token.special
    ? "added by the tokenizer"
    : `characters ${span(token)}${token.word === null ? "" : `, part of word ${token.word}`}`;
  return `Position ${position}, id ${token.id}, segment ${SEGMENTS[token.segment]}: ${where}.`;
}

function selectionOf(payload: TokensPayload, { parameters }: Route) {
  const number = integerParameter(parameters, "at", payload.texts.length);
  const text = payload.texts[number]!;
  const first = text.tokens.findIndex((token) => !token.special);
  return { number, text, selected: integerParameter(parameters, "token", text.tokens.length, Math.max(0, first)) };
}

function drawing(payload: TokensPayload, route: Route) {
  const { text, selected } = selectionOf(payload, route);
  const table = { width: 560, height: 40 + 18 * text.tokens.length };
  const embeddings = text.embeddings.length ? embeddingsDrawing(text, selected) : null;
  return {
    width: Math.max(table.width, embeddings?.width ?? 0),
    height: 30 + (embeddings?.height ?? 0) + table.height,
    draw(painter: Painter) {
      painter.text(`${plural(text.tokens.length, "token")}, ${payload.source}`, 8, 14, { bold: true });
      embeddings?.draw(translated(painter, 0, 30));
      const top = 40 + (embeddings?.height ?? 0);
      const columns = [8, 70, 240, 330, 400, 500];
      const line = (cells: readonly (string | number | undefined)[], y: number, bold: boolean) =>
        cells.forEach((cell, column) =>
          painter.text(String(cell ?? ""), columns[column]!, y, { size: 12, bold, mono: column === 1 }),
        );
      line(["position", "token", "id", "segment", "characters"], top, true);
      text.tokens.forEach((token, index) =>
        line(
          [index, truncate(visible(token.token), 20), token.id, SEGMENTS[token.segment], span(token)],
          top + 18 * (index + 1),
          false,
        ),
      );
    },
  };
}

export const tokenize: View<TokensPayload> = {
  name: "tokenize",
  title: "Tokens",
  about: "The tokens, ids and segments of a text, and the embeddings that a model adds up for each token.",
  verb: "tokenize",
  group: "inside",
  excludes: ["image"],
  examples: [
    { label: "A pair of sentences", values: { source: SKIT, pair: "The actors had no script." } },
    { label: "A film review", values: { source: "a visually stunning rumination on love" } },
    { label: "Words of several pieces", values: { source: "Unbelievably, the rumination was transporting." } },
    { label: "Other scripts and emoji", values: { source: "Él entarté 东京 😀 don't" } },
    { label: "A byte-level tokenizer", values: { source: SKIT }, model: "regard-gpt" },
  ],
  travels: { text: "source", second: "pair", token: true },
  Thumbnail: thumbnails.tokenize,
  token: (payload, route) => {
    const { text, selected } = selectionOf(payload, route);
    return text.tokens[selected]?.token ?? null;
  },
  finding: (payload, route) => {
    const { text } = selectionOf(payload, route);
    const words = new Set(
      text.tokens.filter((token) => !token.special).map((token) => `${token.segment} ${token.word}`),
    ).size;
    const special = text.tokens.filter((token) => token.special).length;
    return (
      `${payload.source} reads ${plural(words, "word")} and punctuation marks as ` +
      `${plural(text.tokens.length - special, "token")}, and adds ${plural(special, "special token")}.`
    );
  },
  fields: [
    { name: "source", label: "Text; several texts are several lines", lines: 2, start: SKIT },
    { name: "pair", label: "Second text of a pair (optional)", optional: true, start: "The actors had no script." },
  ],
  toRequest: ({ source, pair, model }) => ({ source, model, embeddings: true, ...(pair?.trim() && { pair }) }),
  Show,
  drawing,
  table: (payload, route) => {
    const { text } = selectionOf(payload, route);
    return {
      headers: ["position", "token", "id", "segment", "start", "end", "word", "special"],
      rows: text.tokens.map((one, index) => [
        index,
        one.token,
        one.id,
        one.segment,
        one.start ?? "",
        one.end ?? "",
        one.word ?? "",
        String(one.special),
      ]),
    };
  },
};
