// The probabilities of the next token at one position, with the candidates that the filters cut.
import { count, quoted, visible } from "../../format";
import { percent, type Candidate, type Run } from "./payload";

interface Props {
  readonly run: Run;
  readonly at: number;
  /** Continues with another token. */
  readonly onSelect?: (candidate: Candidate) => void;
}

const FILTERS: Readonly<Record<string, string>> = { temperature: "temperature 0", top_k: "top-k", top_p: "top-p", min_p: "min-p" };

export function Candidates({ run, at, onSelect }: Props) {
  const token = run.tokens[at];
  if (!token) return null;
  const { method, temperature } = run.settings;
  const sampled = method !== "beam";
  const { bars, kept, vocabulary, share } = token;
  const largest = Math.max(...bars.map((one) => Math.max(one.tempered, one.probability)));
  const width = (probability: number) => `${(100 * probability) / largest}%`;
  const listed = bars.filter((one) => !one.by);
  const more = kept - listed.length;
  const rest = Math.max(0, share - listed.reduce((sum, one) => sum + one.tempered, 0));
  const rowClass = (one: Candidate, number: number) =>
    [one.by ? "generation-cut" : "generation-kept", one.token === token.id && "generation-selected", !one.by && bars[number + 1]?.by && "generation-edge"].filter(Boolean).join(" ");
  return (
    <section class="generation-bars" aria-label="Candidates for the next token">
      <h3>
        Token {at + 1} of {run.tokens.length}: <span class="token">{visible(token.name)}</span>
      </h3>
      <p class="muted">
        {kept === vocabulary
          ? `All ${count(vocabulary)} tokens are candidates.`
          : `The nucleus holds ${count(kept)} of ${count(vocabulary)} tokens with ${percent(share)} of the probability.`}
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Token</th>
            <th scope="col" class="generation-wide">
              Probability{method === "sample" ? ` at temperature ${temperature}` : ""}
            </th>
            <th scope="col" title="of this token and the more probable ones">
              Sum
            </th>
            {sampled && (
              <th scope="col" class="generation-chance" title="probability after all filters">
                Filtered
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {bars.map((one, number) => (
            <tr key={one.token} class={rowClass(one, number)}>
              <th scope="row">
                {onSelect ? (
                  <button type="button" onClick={() => onSelect(one)} title="continue with this token" aria-label={`continue with ${quoted(one.text)}`}>
                    {visible(one.text)}
                  </button>
                ) : (
                  <span class="token">{visible(one.text)}</span>
                )}
              </th>
              <td class="generation-bar" title={`${one.tempered}; the model's own probability: ${one.probability}`}>
                <div style={{ width: width(one.tempered) }} />
                <i style={{ left: width(one.probability) }} />
                <span>{percent(one.tempered)}</span>
              </td>
              <td title={one.reached === null ? "" : String(one.reached)}>{one.reached === null ? "–" : percent(one.reached)}</td>
              {sampled && <td title={String(one.chance)}>{one.by ? `cut by ${FILTERS[one.by] ?? one.by}` : percent(one.chance)}</td>}
            </tr>
          ))}
          {more > 0 && (
            <tr class={kept < vocabulary ? "generation-more generation-edge" : "generation-more"}>
              <td colSpan={sampled ? 4 : 3}>
                … and {count(more)} more candidates with {percent(rest)} in total
              </td>
            </tr>
          )}
        </tbody>
      </table>
      <p class="muted generation-legend">
        {sampled
          ? "Striped bars were cut by the filters; the thick line is the end of the nucleus. A small mark shows the model's own probability, at temperature 1."
          : "Beam search uses the model's own probabilities."}
        {onSelect && " Press a token to continue with it instead."}
      </p>
    </section>
  );
}
