// Clusters of texts: the characteristic words and central texts of each, and all texts of the selected one.
import { Notes } from "../components";
import { count, decimal, plural } from "../format";
import { MARGIN, type Part, stack, textPart, wrap } from "../painter";
import { currentRoute, integerParameter, setParameters } from "../route";
import { thumbnails } from "../thumbnails";
import type { View, ViewOf } from "../view";
import { ANIMALS_AND_TOOLS, QUESTIONS, TOPICS } from "./embeddings/examples";
import { OpenFile } from "./embeddings/open_file";
import { MESSAGES } from "./search/examples";
import "./search/search.css";

type ClusterPayload = ViewOf<"cluster">;

const unlabeled = (texts: string) => texts.replaceAll(/ \| \w+/g, "");

const MAX_TEXTS = 200; // of the selected cluster on the page
const WIDTH = 900; // of the drawing

function Show({ payload }: { payload: ClusterPayload }) {
  const { clusters, members, model, rows, silhouette } = payload;
  const selected = integerParameter(currentRoute.use().parameters, "at", clusters.length);
  const texts = members.filter((one) => one.cluster === selected).sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
  return (
    <section aria-label="Clusters" class="clusters">
      <OpenFile view="clusters" field="source" />
      <Notes notes={payload.notes} />
      <p class="muted">
        {plural(rows, "text")} in {plural(clusters.length, "cluster")} by k-means, vectors by {model}; silhouette{" "}
        {decimal(silhouette)}.
      </p>
      <ol start={0}>
        {clusters.map((one) => (
          <li key={one.cluster}>
            <button
              type="button"
              aria-pressed={one.cluster === selected}
              onClick={() => setParameters({ at: String(one.cluster) })}
            >
              {plural(one.size, "text")}: {one.words.join(", ")}
            </button>
            <ul>
              {one.texts.map((text, number) => (
                <li key={number} dir="auto">
                  {text}
                </li>
              ))}
            </ul>
          </li>
        ))}
      </ol>
      <h2>All texts of cluster {selected}</h2>
      <ul class="members">
        {texts.slice(0, MAX_TEXTS).map((one) => (
          <li key={one.row} dir="auto">
            <span class="score">{decimal(one.score ?? 0)}</span> {one.text}
          </li>
        ))}
      </ul>
      {texts.length > MAX_TEXTS && (
        <p class="muted">and {count(texts.length - MAX_TEXTS)} more; the CSV file has all of them</p>
      )}
    </section>
  );
}

function drawing({ clusters }: ClusterPayload) {
  const parts: Part[] = clusters.flatMap((one) => [
    ...wrap(`${one.cluster}. ${plural(one.size, "text")}: ${one.words.join(", ")}`, 110).map((line) =>
      textPart(line, { bold: true }),
    ),
    ...one.texts.flatMap((text) => wrap(text, 120).map((line) => textPart(line))),
    textPart(""),
  ]);
  return stack(parts, WIDTH + 2 * MARGIN);
}

function table({ members }: ClusterPayload) {
  const names = [...new Set(members.flatMap((one) => Object.keys(one.columns)))];
  return {
    headers: ["id", "row", "cluster", "score", "text", ...names],
    rows: members.map((one) => [
      one.id,
      one.row,
      one.cluster ?? "",
      one.score ?? "",
      one.text,
      ...names.map((name) => String(one.columns[name] ?? "")),
    ]),
  };
}

export const clusters: View<ClusterPayload> = {
  name: "clusters",
  title: "Clusters",
  about: "Groups of texts with similar vectors, with the words that are frequent in each and rare in the others.",
  group: "vectors",
  examples: [
    { label: "Food, music, sport", values: { source: unlabeled(TOPICS), num_clusters: "3" } },
    { label: "Animals and tools", values: { source: unlabeled(ANIMALS_AND_TOOLS), num_clusters: "2" } },
    { label: "Questions and statements", values: { source: unlabeled(QUESTIONS), num_clusters: "2" } },
    { label: "Customer messages", values: { source: MESSAGES, num_clusters: "4" } },
  ],
  Thumbnail: thumbnails.clusters,
  finding: ({ clusters, rows, model }) => {
    const [largest] = clusters;
    return largest
      ? `${model} groups ${plural(rows, "text")} into ${plural(clusters.length, "cluster")}; the largest ` +
          `(${plural(largest.size, "text")}) is about ${largest.words.slice(0, 3).join(", ")}`
      : "";
  },
  verb: "cluster",
  excludes: ["translation", "image"],
  prefers: ["sentence-embedding"],
  fields: [
    { name: "source", label: "Texts, one per line", lines: 5, start: unlabeled(TOPICS) },
    { name: "num_clusters", label: "Clusters (blank: chosen)", optional: true, start: "3", fold: true },
  ],
  submitLabel: "Cluster",
  Show,
  drawing,
  table,
};
