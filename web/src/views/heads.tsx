// Head patterns: every head of the model as a cell, labeled with what it attends to; clicking one shows scores and
// examples.
import { DataTable, Notes } from "../components";
import { fixedPercent } from "../format";
import { drawHeadGrid, HeadGrid, headGridSize } from "../head_grid";
import { currentRoute, integerParameter, type Route, setParameters } from "../route";
import { colors, series, weightBackground } from "../theme";
import { thumbnails } from "../thumbnails";
import type { HeadExample, HeadPatterns } from "../types";
import type { Drawing, Table, View, ViewOf } from "../view";
import "./heads/heads.css";

type HeadsPayload = ViewOf<"heads">;

const score = (value: number | null) => (value === null ? "–" : value.toFixed(3));
const pValue = (value: number | null) => (value !== null && value < 0.001 ? "< 0.001" : score(value));

const patternColor = (payload: HeadsPayload, pattern: string) => series(Object.keys(payload.about).indexOf(pattern));

const SHORT: Readonly<Record<string, string>> = {
  "next word": "next",
  "previous word": "prev",
  "same or related word": "same",
  delimiter: "sep",
  "predictive words": "pred",
  induction: "ind",
  broad: "broad",
};

/** The selected pattern, or "", and the index of the selected head. */
function selectionOf(payload: HeadsPayload, { parameters }: Route) {
  const pattern = parameters["pattern"] ?? "";
  const labeled = payload.heads.findIndex((head) => head.pattern !== null);
  return {
    pattern: pattern in payload.about ? pattern : "",
    index: integerParameter(parameters, "head", payload.heads.length, Math.max(0, labeled)),
  };
}

/** Color, opacity and text of a cell: the label of the head, or its score for the selected pattern. */
function cellOf(
  payload: HeadsPayload,
  head: HeadPatterns,
  selected: string,
): { color: string; opacity: number; text: string } {
  const pattern = selected || head.pattern;
  if (pattern === null) return { color: "", opacity: 0, text: "" };
  const finding = head.findings.find((one) => one.pattern === pattern)!;
  const excess = finding.score === null || finding.chance === null ? 0 : finding.score - finding.chance;
  const strength = Math.max(0, Math.min(1, selected ? (finding.score ?? 0) : 0.25 + excess));
  return {
    color: patternColor(payload, pattern),
    opacity: 0.1 + 0.6 * strength,
    text: selected ? score(finding.score).replace(/^0/, "") : (SHORT[pattern] ?? "other"),
  };
}

function Show({ payload }: { payload: HeadsPayload }) {
  const theme = colors.use();
  const { pattern, index } = selectionOf(payload, currentRoute.use());
  const unlabeled = payload.heads.filter((head) => head.pattern === null).length;
  const select = (head: number) => setParameters({ head: String(head) });
  const cell = (at: number) => {
    const head = payload.heads[at]!;
    const { color, opacity, text } = cellOf(payload, head, pattern);
    return {
      text,
      pressed: at === index,
      "aria-label": `${text && `${text}: `}layer ${head.layer} head ${head.head}, ${head.pattern ?? "none"}`,
      title: `${head.layer}.${head.head} ${head.pattern ?? "none of these"}`,
      style: {
        background: color
          ? `color-mix(in srgb, ${color} calc(${Math.round(100 * opacity)}% * var(--shade)), ${theme.page})`
          : theme.page,
      },
    };
  };
  return (
    <section aria-label="Head patterns" class="head-patterns">
      <div>
        <p>
          {payload.heads.length} heads of {payload.model} on {payload.read} texts. Click a head for its scores and
          examples, or a pattern for the scores of all heads.
        </p>
        <Notes notes={payload.notes} />
        <HeadGrid
          layers={payload.layers}
          heads={payload.heads_each}
          focused={index}
          onFocus={select}
          onPress={select}
          cell={cell}
        />
        <ul class="legend">
          {Object.entries(payload.about).map(([name, about]) => (
            <li key={name}>
              <button
                type="button"
                title={about}
                aria-pressed={pattern === name}
                onClick={() => setParameters({ pattern: pattern === name ? "" : name })}
              >
                <span class="mark" style={{ background: patternColor(payload, name) }} />
                {name}
                <span>{payload.counts[name]}</span>
              </button>
            </li>
          ))}
        </ul>
        <p class="muted">none of these: {unlabeled}</p>
      </div>
      <HeadDetails payload={payload} head={payload.heads[index]!} />
    </section>
  );
}

function HeadDetails({ payload, head }: { payload: HeadsPayload; head: HeadPatterns }) {
  return (
    <div>
      <h2>
        Layer {head.layer}, head {head.head}: {head.pattern ?? "none of these"}
      </h2>
      <p class="muted">{head.pattern ? `It ${payload.about[head.pattern]}.` : `Nearest: ${head.nearest}.`}</p>
      <DataTable
        class="data-table findings"
        label="Scores"
        headers={["pattern", "score", "95% interval", "chance", "corrected p"]}
        rows={head.findings.map((finding) => [
          finding.pattern,
          score(finding.score),
          finding.interval?.map(score).join(" to ") ?? "–",
          score(finding.chance),
          pValue(finding.corrected),
        ])}
        rowProps={(row) => ({ class: head.findings[row]!.pattern === head.pattern ? "named" : "" })}
      />
      <p class="muted">
        The score is the fraction of attention that falls where the pattern points; chance is the score with shuffled
        tokens; the interval is over the texts. A head is labeled if p, after {payload.correction}’s correction for all
        heads and patterns, is below {payload.level} and the score is at least {payload.excess} above chance.
      </p>
      <h3>{head.examples.length ? `Examples of “${head.nearest}”` : "No examples"}</h3>
      <ol class="examples">
        {head.examples.map((example) => (
          <ExampleText key={`${example.text}.${example.row}`} payload={payload} example={example} />
        ))}
      </ol>
    </div>
  );
}

/** A text in which the outlined token attends to the shaded ones. */
function ExampleText({
  payload,
  example: { text, row, column, weights },
}: {
  payload: HeadsPayload;
  example: HeadExample;
}) {
  const tokens = payload.texts[String(text)]!;
  return (
    <li>
      {tokens.map((token, at) => (
        <span
          key={at}
          class={at === row ? "piece query" : "piece"}
          title={fixedPercent(weights[at]!, 1)}
          style={{ background: weightBackground(weights[at]!) }}
        >
          {token}
        </span>
      ))}
      <span class="muted">
        {" "}
        {tokens[row]} → {tokens[column]} {fixedPercent(weights[column]!, 1)}
      </span>
    </li>
  );
}

const [LEFT, TOP] = [70, 60];

function drawing(payload: HeadsPayload, route: Route): Drawing {
  const { pattern } = selectionOf(payload, route);
  const names = Object.keys(payload.about);
  const [width, height] = headGridSize(payload.layers, payload.heads_each);
  const bottom = TOP + height + 24;
  return {
    width: Math.max(LEFT + width + 16, 420),
    height: bottom + names.length * 22,
    draw(painter) {
      const theme = colors.get();
      painter.text(`${payload.model}: ${pattern || "head patterns"}`, 16, 22, { size: 15, bold: true });
      const cells = payload.heads.map((one) => {
        const { color, opacity, text } = cellOf(payload, one, pattern);
        return { ...one, color: color || theme.rule, opacity: color ? opacity : 0.3, text };
      });
      drawHeadGrid(painter, cells, LEFT, TOP);
      names.forEach((name, number) => {
        painter.rect(16, bottom + number * 22 - 6, 12, 12, patternColor(payload, name));
        painter.text(`${name}: ${payload.counts[name]}`, 36, bottom + number * 22, { size: 12 });
      });
    },
  };
}

function table(payload: HeadsPayload): Table {
  return {
    headers: ["layer", "head", "named", "pattern", "tokens", "score", "chance", "p", "corrected"],
    rows: payload.heads.flatMap((head) =>
      head.findings.map((one) => [
        head.layer,
        head.head,
        head.pattern ?? "",
        one.pattern,
        one.tokens,
        one.score ?? "",
        one.chance ?? "",
        one.p ?? "",
        one.corrected ?? "",
      ]),
    ),
  };
}

const TEXTS = `The strawberries were red, and the cream was cold.
She put the strawberries into the cream.
The king spoke to the queen about the war.
The queen told the king that the war was lost.
A dog ran along the river and a cat slept by the river.
The cat saw the dog and ran away.
He wrote a long letter to his brother in the city.
His brother did not answer the letter.`;

export const heads: View<HeadsPayload> = {
  name: "heads",
  title: "Head patterns",
  about:
    "What does each head attend to: the next word, the previous one, the same word, the other sentence, [SEP]? " +
    "Texts are read in pairs, one per line; more texts give more reliable results.",
  group: "inside",
  examples: [
    { label: "Everyday sentences", values: { text: TEXTS } },
    { label: "The same in a model that reads left to right", values: { text: TEXTS }, model: "regard-gpt" },
    { label: "Heads that look at the next word", values: { text: TEXTS }, select: { pattern: "next word" } },
    { label: "Heads that look at the previous word", values: { text: TEXTS }, select: { pattern: "previous word" } },
  ],
  Thumbnail: thumbnails.heads,
  finding: ({ heads: all, counts, model }) => {
    const labeled = all.filter((head) => head.pattern !== null).length;
    const [common = "", count = 0] = Object.entries(counts).sort(([, a], [, b]) => b - a)[0] ?? [];
    return (
      `${labeled} of ${all.length} heads of ${model} follow a known ` +
      `pattern${labeled ? `; most often “${common}” (${count})` : ""}`
    );
  },
  verb: "heads",
  excludes: ["translation", "image"],
  fields: [{ name: "text", label: "Texts, one per line", lines: 8, start: TEXTS }],
  Show,
  drawing,
  table,
};
