// One generated text: its tokens, the candidates at one position, and the search tree of a beam search; and the exports
// of the view.

import { inStudio } from "../../api";
import { count, plural, quoted, visible } from "../../format";
import { MARGIN, type Part, stack, textPart, translated, wrap } from "../../painter";
import { currentRoute, formatRoute, onArrowKeys, type Route, setParameters } from "../../route";
import { colors } from "../../theme";
import type { CandidateToken, GeneratedToken } from "../../types";
import type { Drawing, Table } from "../../view";
import {
  allCandidates,
  drawTree,
  layoutTree,
  outcome,
  Results,
  Steps,
  TreeView,
  tokensTo,
} from "../decoding/tree_view";
import { describeSettings, type Generation, percent, type Run, selectedToken } from "./payload";
import { reshape, type WhatIf, WhatIfSliders, whatIf } from "./what_if";

interface Props {
  readonly run: Run;
  /** Continues after the prompt and these tokens. */
  readonly branch?: (run: Run, ids: readonly number[]) => void;
}

const stoppedAfter = ({ tokens }: Run) => `Stopped after ${plural(tokens.length, "token")}.`;

function finishText(run: Run): string {
  switch (run.reason) {
    case "end":
      return "The model ended the text.";
    case "stop":
      return "A stop text was generated.";
    case "length":
      return run.stopped
        ? stoppedAfter(run)
        : `${run.tokens.length} tokens, the maximum ` +
            `${run.max_new_tokens < run.settings.max_new_tokens ? "for the model's context" : "requested"}.`;
    case "interrupted":
      return run.tokens.length ? stoppedAfter(run) : "Nothing was generated.";
  }
}

export function Column({ run, branch }: Props) {
  const at = selectedToken(run, currentRoute.use().parameters);
  const row = run.trace?.rows[0];
  const active = run.running ?? false;
  const continueWith = branch && run.continues ? (ids: readonly number[]) => branch(run, ids) : undefined;
  const status = !active
    ? finishText(run)
    : run.progress
      ? `Searching: step ${run.progress.done} of at most ${run.progress.total} …`
      : "Generating …";
  return (
    <section class="generation-column" aria-label={`${run.model}, ${describeSettings(run)}`}>
      <h2>{run.model}</h2>
      <p class="muted">{describeSettings(run)}</p>
      {run.truncated > 0 && (
        <p class="muted">
          The prompt is too long for this model: its first {count(run.truncated)} tokens were cut, up to “
          {run.truncated_text.slice(-40)}”.
        </p>
      )}
      <div class="generation-split">
        <div>
          <GeneratedText run={run} at={at} active={active} />
          <p class="muted" role="status">
            {status}
          </p>
          {run.tokens.length > 0 && (
            <p class="muted generation-legend">
              Less probable tokens have a darker background. Press one for its candidates.
            </p>
          )}
        </div>
        <Candidates
          run={run}
          at={at}
          {...(continueWith && {
            onSelect: (one) => continueWith([...run.tokens.slice(0, at).map((token) => token.id), one.token]),
          })}
        />
      </div>
      {row && (
        <div class="decoding">
          <h3>The search, step by step</h3>
          <p class="muted">
            One column per step, the most probable hypotheses on top. Filled boxes were kept, a double frame ended a
            text, a dagger marks a hypothesis of which nothing was kept; the thick line is the best text.
            {continueWith && " Press a box to continue from it; arrow keys move between boxes."}
          </p>
          <Results row={row} />
          <TreeView
            row={row}
            {...(continueWith && {
              onSelect: (box) => continueWith([...tokensTo(row, box.parent), box.candidate.token]),
            })}
          />
          <details>
            <summary>All steps as tables</summary>
            <Steps row={row} method="beam" />
          </details>
        </div>
      )}
    </section>
  );
}

function GeneratedText({ run, at, active }: { run: Run; at: number; active: boolean }) {
  const move = onArrowKeys({ ArrowRight: 1, ArrowLeft: -1 }, (step, list) => {
    const next = Math.max(0, Math.min(run.tokens.length - 1, at + step));
    setParameters({ lock: String(next) });
    requestAnimationFrame(() => list.querySelectorAll<HTMLElement>("[role=button]")[next]?.focus());
  });
  return (
    <div class="generation-text" dir="auto">
      <span class="muted">{run.prompt}</span>
      {!run.continues && "\n"}
      <span role="group" aria-label="Generated tokens; use the left and right arrow keys" onKeyDown={move}>
        {run.tokens.map((token, number) => (
          <TokenButton
            key={number}
            token={token}
            pressed={number === at}
            onPress={() => setParameters({ lock: String(number) })}
          />
        ))}
      </span>
      {active && <span class="generation-cursor" aria-hidden="true" />}
    </div>
  );
}

function TokenButton({ token, pressed, onPress }: { token: GeneratedToken; pressed: boolean; onPress(): void }) {
  const probability = token.candidates.find((one) => one.token === token.id)?.probability ?? 0;
  return (
    <span
      role="button"
      tabIndex={pressed ? 0 : -1}
      aria-pressed={pressed}
      class={token.text ? "" : "generation-hollow"}
      style={{ "--doubt": `${Math.round(26 * (1 - probability))}%` }}
      title={`${quoted(token.name)}, ${percent(probability)}`}
      onClick={onPress}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onPress();
      }}
    >
      {token.text || visible(token.name)}
    </span>
  );
}

interface CandidatesProps {
  readonly run: Run;
  readonly at: number;
  /** Continues with another token. */
  readonly onSelect?: (candidate: CandidateToken) => void;
}

/**
 * The attention view of the text up to a token, with that token selected; of a model that answers, its row in the
 * decoder's cross-attention.
 */
function attentionRoute({ model, prompt, continues, tokens }: Run, at: number): string {
  const text = (last: number) =>
    tokens
      .slice(0, last)
      .map((one) => one.text)
      .join("");
  const parameters: Record<string, string> = continues
    ? { text: prompt + text(at + 1), lock: "r-1" }
    : { text: prompt, text_b: text(tokens.length), map: "2", lock: `r${at}` };
  return formatRoute({ view: "attention", parameters: { model, ...parameters } });
}

const FILTERS: Readonly<Record<string, string>> = {
  temperature: "temperature 0",
  top_k: "top-k",
  top_p: "top-p",
  min_p: "min-p",
};

export function Candidates({ run, at, onSelect }: CandidatesProps) {
  const asked = whatIf(run, currentRoute.use().parameters);
  const generated = run.tokens[at];
  if (!generated) return null;
  const token = asked ? reshape(generated, asked) : generated;
  const temperature = asked?.temperature ?? run.settings.temperature;
  const sampled = run.method !== "beam";
  const { candidates, nucleus_size: size, nucleus_probability: total, vocab_size: vocabulary } = token;
  const largest = Math.max(...candidates.map((one) => Math.max(one.scaled_probability, one.probability)));
  const width = (probability: number) => `${(100 * probability) / largest}%`;
  const listed = candidates.filter((one) => !one.removed_by);
  const more = size - listed.length;
  const rest = Math.max(0, total - listed.reduce((sum, one) => sum + one.scaled_probability, 0));
  const rowClass = (one: CandidateToken, number: number) =>
    [
      one.removed_by ? "generation-removed" : "generation-available",
      one.token === token.id && "generation-selected",
      !one.removed_by && candidates[number + 1]?.removed_by && "generation-edge",
    ]
      .filter(Boolean)
      .join(" ");
  return (
    <section class="generation-bars" aria-label="Candidates for the next token">
      <h3>
        Token {at + 1} of {run.tokens.length}: <span class="token">{visible(token.name)}</span>{" "}
        {inStudio() && (
          <a class="generation-attention" href={attentionRoute(run, at)}>
            its attention
          </a>
        )}
      </h3>
      <WhatIfSliders run={run} />
      <p class="muted">
        {size === vocabulary
          ? `All ${count(vocabulary)} tokens are candidates.`
          : `The nucleus holds ${count(size)} of ${count(vocabulary)} tokens with ${percent(total)} of the ` +
            "probability."}
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Token</th>
            <th scope="col" class="generation-wide">
              Probability{run.method === "sample" || asked ? ` at temperature ${temperature}` : ""}
            </th>
            <th scope="col" title="of this token and the more probable ones">
              Sum
            </th>
            {sampled && (
              <th scope="col" class="generation-filtered" title="probability after all filters">
                Filtered
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {candidates.map((one, number) => (
            <tr key={one.token} class={rowClass(one, number)}>
              <th scope="row">
                {onSelect ? (
                  <button
                    type="button"
                    onClick={() => onSelect(one)}
                    title="continue with this token"
                    aria-label={`continue with ${quoted(one.text)}`}
                  >
                    {visible(one.text)}
                  </button>
                ) : (
                  <span class="token">{visible(one.text)}</span>
                )}
              </th>
              <td
                class="generation-bar"
                title={`${one.scaled_probability}; the model's own probability: ${one.probability}`}
              >
                <div style={{ width: width(one.scaled_probability) }} />
                <i style={{ left: width(one.probability) }} />
                <span>{percent(one.scaled_probability)}</span>
              </td>
              <td title={one.cumulative_probability === null ? "" : String(one.cumulative_probability)}>
                {one.cumulative_probability === null ? "–" : percent(one.cumulative_probability)}
              </td>
              {sampled && (
                <td title={String(one.sampling_probability)}>
                  {one.removed_by
                    ? `by ${FILTERS[one.removed_by] ?? one.removed_by}`
                    : percent(one.sampling_probability)}
                </td>
              )}
            </tr>
          ))}
          {more > 0 && (
            <tr class={size < vocabulary ? "generation-more generation-edge" : "generation-more"}>
              <td colSpan={sampled ? 4 : 3}>
                … and {count(more)} more candidates with {percent(rest)} in total
              </td>
            </tr>
          )}
        </tbody>
      </table>
      <p class="muted generation-legend">
        {sampled
          ? "Striped bars were removed by the filters; the thick line is the end of the nucleus. A small mark shows " +
            "the model's own probability, at temperature 1."
          : "Beam search uses the model's own probabilities."}
        {onSelect && " Press a token to continue with it instead."}
      </p>
    </section>
  );
}

const WIDTH = 860;
const LINE = 19;
const MAX_CHARACTERS = 100; // per line
const [LEFT, BAR] = [170, 420];

export function drawing(payload: Generation, { parameters }: Route): Drawing {
  const trees = payload.runs.map((run) => (run.trace?.rows[0] ? layoutTree(run.trace.rows[0]) : null));
  const parts = payload.runs.flatMap((run, number): Part[] => {
    const tree = trees[number];
    return [
      textPart(run.model, { bold: true, size: 15 }, 20),
      textPart(describeSettings(run), { color: colors.get().muted }, 26),
      textOf(run),
      candidates(run, selectedToken(run, parameters), whatIf(run, parameters)),
      ...(tree ? ([[tree.height + 10, (painter, y) => drawTree(translated(painter, 0, y), tree)]] as Part[]) : []),
    ];
  });
  return stack(parts, Math.max(WIDTH, ...trees.map((tree) => tree?.width ?? 0)));
}

function textOf(run: Run): Part {
  const text = `${run.prompt}${run.continues ? "" : "\n"}${run.tokens.map((token) => token.text).join("")}`;
  const lines = text.split("\n").flatMap((line) => wrap(line, MAX_CHARACTERS));
  return [
    lines.length * LINE + 14,
    (painter, y) =>
      lines.forEach((line, number) => painter.text(line, MARGIN, y + LINE * (number + 0.5), { mono: true })),
  ];
}

function candidates(run: Run, at: number, asked: WhatIf | null): Part {
  const generated = run.tokens[at];
  if (!generated) return [0, () => undefined];
  const token = asked ? reshape(generated, asked) : generated;
  const largest = Math.max(...token.candidates.map((one) => Math.max(one.scaled_probability, one.probability)));
  const sampled = run.method !== "beam";
  return [
    LINE * (token.candidates.length + 3),
    (painter, y) => {
      const { accent, muted, ink, other } = colors.get();
      const title =
        `Token ${at + 1}: ${visible(token.name)}; the nucleus holds ${count(token.nucleus_size)} tokens with ` +
        `${percent(token.nucleus_probability)} of the ` +
        `probability${asked ? ` at temperature ${asked.temperature} and top-p ${asked.topP}` : ""}`;
      painter.text(title, MARGIN, y + LINE / 2, { color: muted });
      const columns = {
        Token: LEFT - 10,
        Probability: LEFT + BAR + 60,
        Sum: LEFT + BAR + 130,
        ...(sampled && { Filtered: LEFT + BAR + 200 }),
      };
      for (const [text, x] of Object.entries(columns))
        painter.text(text, x, y + LINE * 1.5, { align: "right", color: muted, size: 12 });
      token.candidates.forEach((one, number) => {
        const top = y + LINE * (number + 2);
        const middle = top + LINE / 2;
        const selected = one.token === token.id;
        const removed = one.removed_by !== null;
        const mark = LEFT + (BAR * one.probability) / largest;
        painter.text(visible(one.text), columns.Token, middle, {
          align: "right",
          mono: true,
          bold: selected,
          color: removed ? muted : ink,
        });
        painter.rect(
          LEFT,
          top + 3,
          (BAR * one.scaled_probability) / largest,
          LINE - 6,
          removed ? muted : accent,
          removed ? 0.3 : selected ? 1 : 0.6,
        );
        painter.line(mark, top + 2, mark, top + LINE - 2, ink);
        painter.text(percent(one.scaled_probability), columns.Probability, middle, { align: "right" });
        painter.text(
          one.cumulative_probability === null ? "" : percent(one.cumulative_probability),
          columns.Sum,
          middle,
          { align: "right", color: muted },
        );
        if (columns.Filtered)
          painter.text(removed ? "removed" : percent(one.sampling_probability), columns.Filtered, middle, {
            align: "right",
            color: muted,
          });
        if (!removed && token.candidates[number + 1]?.removed_by)
          painter.line(MARGIN, top + LINE, LEFT + BAR + 210, top + LINE, other, 1, 2);
      });
    },
  ];
}

/** The candidates at every position, then the steps of a beam search. */
export function table(payload: Generation): Table {
  const rows = payload.runs.flatMap((run, number) => [
    ...run.tokens.flatMap((token, at) =>
      token.candidates.map((one) => {
        const result =
          one.token === token.id
            ? "selected"
            : one.removed_by
              ? `removed by ${one.removed_by.replace("_", "-")}`
              : "not selected";
        const sampling = run.method === "beam" ? "" : one.sampling_probability;
        return [
          number + 1,
          "candidate",
          at + 1,
          one.token,
          one.text,
          one.probability,
          one.scaled_probability,
          one.cumulative_probability ?? "",
          sampling,
          result,
        ];
      }),
    ),
    ...(run.trace?.rows ?? [])
      .flatMap(allCandidates)
      .map(({ step, candidate: one }) => [
        number + 1,
        "search",
        step,
        one.token,
        one.text,
        one.log_probability === null ? 0 : Math.exp(one.log_probability),
        "",
        "",
        "",
        outcome(one),
      ]),
  ]);
  const probabilities = ["probability", "scaled_probability", "cumulative_probability", "sampling_probability"];
  return { headers: ["text", "kind", "position", "token", "name", ...probabilities, "outcome"], rows };
}
