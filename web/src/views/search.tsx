// Search: the texts that are nearest to a query, with their scores and the words that they share with it.
import type { ComponentChildren } from "preact";
import { ButtonGroup, Notes } from "../components";
import { count, decimal, plural, slice, truncate } from "../format";
import { MARGIN, type Part, stack, textPart, wrap } from "../painter";
import { currentRoute, setParameters } from "../route";
import { thumbnails } from "../thumbnails";
import type { Explanation, Hit, QueryResult } from "../types";
import type { View, ViewOf } from "../view";
import { OpenFile } from "./embeddings/open_file";
import { MESSAGES } from "./search/examples";
import "./search/search.css";

type SearchPayload = ViewOf<"search">;

const METHODS = { dense: "Vectors", bm25: "Words (BM25)", hybrid: "Both" };
const SCORES: Readonly<Record<string, string>> = {
  dense: "The score is the cosine similarity of the vectors.",
  bm25: "The score is BM25: rare words of the query that occur often in a short text count most.",
  splade: "The score is the product of the sparse vectors: tokens that weigh much in query and text count most.",
  hybrid: "The score is the sum of 1 / (60 + rank) over the rankings of all methods.",
};
const MAX_PARTS = 8; // of an explanation
const WIDTH = 900; // of the drawing

function Show({ payload }: { payload: SearchPayload }) {
  const { method, model, rows, results, rerank } = payload;
  return (
    <section aria-label="Search results" class="hits">
      <OpenFile view="search" field="source" />
      <Notes notes={payload.notes} />
      <div class="choices">
        <ButtonGroup title="Compare" options={METHODS} value={method} onSelect={compareBy} />
      </div>
      <p class="muted">
        {plural(rows, "text")}
        {model && `, vectors by ${model}`}.{" "}
        {rerank === null ? SCORES[method] : "The score is what the reranker predicts."}
      </p>
      {results.map((one, number) => (
        <Ranking key={number} result={one} />
      ))}
    </section>
  );
}

/**
 * Repeat the search with another method; the first search of a page has the initial values, which are not in its
 * address.
 */
function compareBy(method: string): void {
  const { parameters } = currentRoute.get();
  const initial = search.fields.some((field) => field.name in parameters)
    ? []
    : search.fields.map((field) => [field.name, field.start]);
  setParameters({ ...Object.fromEntries(initial), method });
}

function Ranking({ result: { query, hits } }: { result: QueryResult }) {
  const [low, high] = extent(hits);
  return (
    <>
      <h2 dir="auto">{query}</h2>
      {hits.length === 0 && <p class="muted">No text has a word of this query.</p>}
      <ol>
        {hits.map((hit) => (
          <li key={hit.rank} value={hit.rank}>
            <meter min={low} max={high} value={hit.score} aria-label={`score of rank ${hit.rank}`} />
            <span class="score">{decimal(hit.score)}</span>
            <p dir="auto">{emphasized(hit)}</p>
            <p class="muted">
              {hit.id === hit.row ? `row ${count(hit.row)}` : `${hit.id}, row ${count(hit.row)}`}
              {Object.entries(hit.columns).map(([name, value]) => ` · ${name}: ${String(value)}`)}
            </p>
            {hit.explanation?.map((one) => (
              <p key={one.method} class="muted" dir="auto">
                {why(one)}
              </p>
            ))}
          </li>
        ))}
      </ol>
    </>
  );
}

/** What adds up to a score, the largest parts first. */
function why({ method, parts, note }: Explanation): string {
  if (note) return `${method}: ${note}`;
  const largest = [...parts].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
  const listed = largest.slice(0, MAX_PARTS).map(({ name, contribution }) => `${name} ${decimal(contribution)}`);
  const more = largest.length > MAX_PARTS ? [`${count(largest.length - MAX_PARTS)} more`] : [];
  return `${method}: ${[...listed, ...more].join(" · ")}`;
}

/** The text with the words that it shares with the query marked. */
function emphasized({ text, matches }: Hit): ComponentChildren[] {
  let end = 0;
  const parts: ComponentChildren[] = [];
  for (const [start, stop] of matches) {
    parts.push(slice(text, end, start), <mark key={start}>{slice(text, start, stop)}</mark>);
    end = stop;
  }
  return [...parts, slice(text, end)];
}

/** The range of the bars: from 0, or from below the lowest score where all are high, as cosines of one model are. */
function extent(hits: readonly Hit[]): readonly [number, number] {
  const scores = hits.map((hit) => hit.score);
  const [lowest, highest] = [Math.min(...scores), Math.max(...scores)];
  const low = lowest > highest / 2 ? lowest - (highest - lowest) / 4 : Math.min(0, lowest);
  return [low, Math.max(highest, low + 1e-9)];
}

function drawing({ results }: SearchPayload) {
  const parts: Part[] = results.flatMap(({ query, hits }) => [
    ...wrap(query, 110).map((line) => textPart(line, { bold: true })),
    ...hits.flatMap((hit) =>
      wrap(`${hit.rank}. ${decimal(hit.score)}  ${hit.text}`, 120).map((line) => textPart(line)),
    ),
    textPart(""),
  ]);
  return stack(parts, WIDTH + 2 * MARGIN);
}

function table({ results }: SearchPayload) {
  const hits = results.flatMap((one) => one.hits.map((hit) => ({ query: one.query, ...hit })));
  const names = [...new Set(hits.flatMap((hit) => Object.keys(hit.columns)))];
  return {
    headers: ["query", "rank", "score", "id", "row", "text", ...names],
    rows: hits.map((hit) => [
      hit.query,
      hit.rank,
      hit.score,
      hit.id,
      hit.row,
      hit.text,
      ...names.map((name) => String(hit.columns[name] ?? "")),
    ]),
  };
}

export const search: View<SearchPayload> = {
  name: "search",
  title: "Search",
  about: "The texts that are nearest to a query: by the vectors of a model, by the words in common, or by both.",
  group: "vectors",
  examples: [
    { label: "Parcel", values: { query: "when will my parcel arrive", source: MESSAGES, top: "10", method: "dense" } },
    { label: "Money back", values: { query: "I want a refund", source: MESSAGES, top: "10", method: "dense" } },
    {
      label: "The same by words (BM25)",
      values: { query: "I want a refund", source: MESSAGES, top: "10", method: "bm25" },
    },
    {
      label: "Two queries",
      values: { query: "the phone is dead\nnice clothes", source: MESSAGES, top: "5", method: "dense" },
    },
    {
      label: "Both methods",
      values: { query: "I cannot sign in to my account", source: MESSAGES, top: "10", method: "hybrid" },
    },
  ],
  travels: { text: "query" },
  Thumbnail: thumbnails.search,
  finding: ({ results, model, method }) => {
    const [first] = results;
    const [hit] = first?.hits ?? [];
    return first && hit
      ? `Nearest to “${truncate(first.query, 60)}”${method === "bm25" ? " by words" : ` for ${model}`}: ` +
          `“${truncate(hit.text, 80)}” (${decimal(hit.score)})`
      : "";
  },
  verb: "search",
  excludes: ["translation", "image"],
  prefers: ["sentence-embedding"],
  fields: [
    { name: "query", label: "Query; several on lines of their own", lines: 2, start: "when will my parcel arrive" },
    { name: "source", label: "Texts, one per line", lines: 5, start: MESSAGES },
    { name: "top", label: "Texts per query", start: "10", fold: true },
    { name: "method", label: "Method (dense, bm25 or hybrid)", hidden: true, start: "dense" },
  ],
  submitLabel: "Search",
  Show,
  drawing,
  table,
};
