// Head patterns: every head of the model as a cell, named after what it looks at; click one for numbers and examples.
import type { Route } from "../route";
import { setParameters, currentRoute, integerParameter } from "../route";
import { colors, series } from "../theme";
import type { Drawing, Table, View } from "../view";
import "./heads/heads.css";
import type { Census, Example, Head } from "./heads/payload";
import { excess, findingOf } from "./heads/payload";

const said = (value: number | null) => (value === null ? "–" : value.toFixed(3));
const chanceOf = (value: number | null) => (value === null ? "–" : value < 0.001 ? "< 0.001" : value.toFixed(3));

function colorOf(payload: Census, pattern: string): string {
  return series(Object.keys(payload.about).indexOf(pattern));
}

function initials(pattern: string): string {
  return { "next word": "next", "previous word": "prev", "same or related word": "same", delimiter: "sep", "predictive words": "pred", broad: "broad" }[pattern] ?? "other";
}

/** The pattern whose scores are drawn, if one is chosen, and the head that is looked at. */
function chosen(payload: Census, { parameters }: Route) {
  const pattern = parameters["pattern"] ?? "";
  const named = payload.heads.findIndex((head) => head.pattern !== null);
  return {
    pattern: pattern in payload.about ? pattern : "",
    number: integerParameter(parameters, "head", payload.heads.length, Math.max(0, named)),
  };
}

/** What a cell shows: a colour, how full it is, and a word or a number. */
function cell(payload: Census, head: Head, pattern: string): { color: string; fill: number; text: string } {
  const name = pattern || head.pattern;
  if (name === null) return { color: "", fill: 0, text: "" };
  const finding = findingOf(head, name);
  const strength = Math.max(0, Math.min(1, pattern ? (finding.score ?? 0) : 0.25 + excess(finding)));
  return { color: colorOf(payload, name), fill: 0.1 + 0.6 * strength, text: pattern ? said(finding.score).replace(/^0/, "") : initials(name) };
}

function Show({ payload }: { payload: Census }) {
  const here = currentRoute.use();
  const look = colors.use();
  const { pattern, number } = chosen(payload, here);
  const none = payload.heads.filter((head) => head.pattern === null).length;
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: payload.heads_each, ArrowUp: -payload.heads_each }[event.key];
    if (step === undefined || number + step < 0 || number + step >= payload.heads.length) return;
    event.preventDefault();
    setParameters({ head: String(number + step) });
    const buttons = (event.currentTarget as Element).querySelectorAll("button");
    buttons[number + step]?.focus();
  };
  return (
    <section aria-label="Census of heads" class="census">
      <div>
        <p>
          {payload.heads.length} heads of {payload.model} over {payload.read} texts. Click a head for its numbers and examples, or a pattern for every head's score.
        </p>
        {payload.notes.map((note) => (
          <p key={note}>{note}</p>
        ))}
        <ul class="legend">
          {Object.entries(payload.about).map(([name, about]) => (
            <li key={name}>
              <button type="button" title={about} aria-pressed={pattern === name} onClick={() => setParameters({ pattern: pattern === name ? "" : name })}>
                <span class="mark" style={{ background: colorOf(payload, name) }} />
                {name}
                <span>{payload.counts[name]}</span>
              </button>
            </li>
          ))}
        </ul>
        <p class="muted">none of these: {none}</p>
        <div class="wide">
          <div class="head-grid" role="group" aria-label="Heads" style={{ gridTemplateColumns: `auto repeat(${payload.heads_each}, 36px)` }} onKeyDown={move}>
            <span class="at">layer</span>
            {Array.from({ length: payload.heads_each }, (_, head) => (
              <span key={head} class="at across">
                {head}
              </span>
            ))}
            {payload.heads.map((head, at) => {
              const { color, fill, text } = cell(payload, head, pattern);
              const background = color ? `color-mix(in srgb, ${color} ${Math.round(100 * fill)}%, ${look.page})` : look.page;
              const button = (
                <button
                  key={at}
                  type="button"
                  aria-pressed={at === number}
                  tabIndex={at === number ? 0 : -1}
                  aria-label={`${text && `${text}: `}layer ${head.layer} head ${head.head}, ${head.pattern ?? "none"}`}
                  title={`${head.layer}.${head.head} ${head.pattern ?? "none of these"}`}
                  style={{ background }}
                  onClick={() => setParameters({ head: String(at) })}
                >
                  {text}
                </button>
              );
              return head.head ? button : [<span key={`l${at}`} class="at">{head.layer}</span>, button];
            })}
          </div>
        </div>
      </div>
      <One payload={payload} head={payload.heads[number]!} />
    </section>
  );
}

function One({ payload, head }: { payload: Census; head: Head }) {
  return (
    <div>
      <h2>
        Layer {head.layer}, head {head.head}: {head.pattern ?? "none of these"}
      </h2>
      <p class="muted">{head.pattern ? `It ${payload.about[head.pattern]}.` : `Nearest: ${head.nearest}.`}</p>
      <div class="wide" tabIndex={0} role="region" aria-label="Scores">
        <table class="findings">
          <thead>
            <tr>
              <th scope="col">pattern</th>
              <th scope="col">score</th>
              <th scope="col">chance</th>
              <th scope="col">corrected p</th>
            </tr>
          </thead>
          <tbody>
            {head.findings.map((finding) => (
              <tr key={finding.pattern} class={finding.pattern === head.pattern ? "named" : ""}>
                <th scope="row">{finding.pattern}</th>
                <td>{said(finding.score)}</td>
                <td>{said(finding.chance)}</td>
                <td>{chanceOf(finding.corrected)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted">
        A score is the share of attention that falls where the pattern points, chance that with shuffled tokens. A head is named where p, after {payload.correction}’s correction for all heads and
        patterns, is below {payload.level} and the score at least {payload.excess} above chance.
      </p>
      <h3>{head.examples.length ? `Examples of “${head.nearest}”` : "No examples"}</h3>
      <ol class="examples">
        {head.examples.map((example) => (
          <Shown key={`${example.text}.${example.row}`} payload={payload} example={example} />
        ))}
      </ol>
    </div>
  );
}

/** A text whose outlined token looks at the shaded ones. */
function Shown({ payload, example }: { payload: Census; example: Example }) {
  const tokens = payload.texts[String(example.text)]!;
  return (
    <li>
      {tokens.map((token, at) => {
        const weight = example.weights[at]!;
        return (
          <span key={at} class={at === example.row ? "piece looks" : "piece"} title={`${(100 * weight).toFixed(1)}%`} style={{ background: `color-mix(in srgb, var(--accent) ${Math.round(60 * weight)}%, transparent)` }}>
            {token}
          </span>
        );
      })}
      <span class="muted">
        {" "}
        {tokens[example.row]} → {tokens[example.column]} {(100 * example.weights[example.column]!).toFixed(1)}%
      </span>
    </li>
  );
}

const CELL = { wide: 52, high: 34 };

function drawing(payload: Census, here: Route): Drawing {
  const { pattern } = chosen(payload, here);
  const names = Object.keys(payload.about);
  const top = 60;
  return {
    width: Math.max(60 + payload.heads_each * CELL.wide, 420),
    height: top + payload.layers * CELL.high + 24 + names.length * 22,
    draw(painter) {
      const look = colors.get();
      painter.text(`${payload.model}: ${pattern || "patterns of heads"}`, 16, 22, { size: 15, bold: true });
      for (let head = 0; head < payload.heads_each; head++) painter.text(String(head), 60 + (head + 0.5) * CELL.wide, top - 12, { align: "center", size: 11, color: look.muted });
      for (const head of payload.heads) {
        const { color, fill, text } = cell(payload, head, pattern);
        const [x, y] = [60 + head.head * CELL.wide, top + head.layer * CELL.high];
        painter.rect(x + 1, y + 1, CELL.wide - 2, CELL.high - 2, color || look.rule, color ? fill : 0.3);
        painter.text(text, x + CELL.wide / 2, y + CELL.high / 2, { align: "center", size: 11 });
        if (!head.head) painter.text(String(head.layer), 50, y + CELL.high / 2, { align: "right", size: 11, color: look.muted });
      }
      names.forEach((name, number) => {
        const y = top + payload.layers * CELL.high + 24 + number * 22;
        painter.rect(16, y - 6, 12, 12, colorOf(payload, name));
        painter.text(`${name}: ${payload.counts[name]}`, 36, y, { size: 12 });
      });
    },
  };
}

function table(payload: Census): Table {
  return {
    headers: ["layer", "head", "named", "pattern", "tokens", "score", "chance", "p", "corrected"],
    rows: payload.heads.flatMap((head) =>
      head.findings.map(({ pattern, tokens, score, chance, p, corrected }) => [
        head.layer,
        head.head,
        head.pattern ?? "",
        pattern,
        tokens,
        score ?? "",
        chance ?? "",
        p ?? "",
        corrected ?? "",
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

export const heads: View<Census> = {
  name: "heads",
  title: "Head patterns",
  about: "What does every head look at: the next word, the previous one, the same word, the other sentence, [SEP]? Texts are read in pairs, one a line; more of them give surer answers.",
  model: true,
  suits: ["reader", "writer", "tuned"],
  fields: [{ name: "texts", label: "Texts, one a line", lines: 8, start: TEXTS }],
  Show,
  drawing,
  table,
};
