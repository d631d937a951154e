// The bars at one place: how likely each next token is, and where the nucleus ends. Knows no server.
import { quoted, visible } from "../search/trace";
import { percent, type Bar, type Run } from "./payload";

interface Props {
  readonly run: Run;
  readonly at: number;
  /** Go on from a token instead of the one that was said. */
  readonly pick?: (bar: Bar) => void;
}

const FILTERS: Readonly<Record<string, string>> = { temperature: "temperature 0", top_k: "top-k", top_p: "top-p", min_p: "min-p" };

export function Bars({ run, at, pick }: Props) {
  const token = run.tokens[at];
  if (!token) return null;
  const byChance = run.settings.method !== "beam";
  const largest = Math.max(...token.bars.map((bar) => Math.max(bar.tempered, bar.probability)));
  const width = (share: number) => `${(100 * share) / largest}%`;
  const { kept, vocabulary, share } = token;
  const listed = token.bars.filter((bar) => !bar.by);
  const more = kept - listed.length;
  const rest = Math.max(0, share - listed.reduce((sum, bar) => sum + bar.tempered, 0));
  return (
    <section class="generation-bars" aria-label="What may come next">
      <h3>
        Place {at + 1} of {run.tokens.length}: <span class="token">{visible(token.name)}</span> was said
      </h3>
      <p class="muted">
        {kept === vocabulary
          ? `All ${vocabulary.toLocaleString("en")} tokens may be said here.`
          : `${kept.toLocaleString("en")} of ${vocabulary.toLocaleString("en")} tokens may be said here; they have ${percent(share)} of the probability.`}
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Token</th>
            <th scope="col" class="generation-wide">
              Probability{run.settings.method === "sample" ? ` at temperature ${run.settings.temperature}` : ""}
            </th>
            <th scope="col" title="of this token and the likelier ones">
              Sum
            </th>
            {byChance && (
              <th scope="col" class="generation-chance" title="after all filters">
                Chance
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {token.bars.map((bar, number) => (
            <tr key={bar.token} class={[bar.by ? "generation-cut" : "generation-kept", bar.token === token.id && "generation-said", edge(token.bars, number) && "generation-edge"].filter(Boolean).join(" ")}>
              <th scope="row">
                {pick ? (
                  <button type="button" onClick={() => pick(bar)} title="go on from here with this token" aria-label={`go on with ${quoted(bar.text)}`}>
                    {visible(bar.text)}
                  </button>
                ) : (
                  <span class="token">{visible(bar.text)}</span>
                )}
              </th>
              <td class="generation-bar" title={`${bar.tempered}; the model's own probability: ${bar.probability}`}>
                <div style={{ width: width(bar.tempered) }} />
                <i style={{ left: width(bar.probability) }} />
                <span>{percent(bar.tempered)}</span>
              </td>
              <td title={bar.reached === null ? "" : String(bar.reached)}>{bar.reached === null ? "–" : percent(bar.reached)}</td>
              {byChance && <td title={String(bar.chance)}>{bar.by ? `cut by ${FILTERS[bar.by] ?? bar.by}` : percent(bar.chance)}</td>}
            </tr>
          ))}
          {more > 0 && (
            <tr class={kept < vocabulary ? "generation-more generation-edge" : "generation-more"}>
              <td colSpan={byChance ? 4 : 3}>
                … and {more.toLocaleString("en")} more that may be said, {percent(rest)} together
              </td>
            </tr>
          )}
        </tbody>
      </table>
      <p class="muted generation-legend">
        {run.settings.method === "beam"
          ? "A search takes the model's probabilities as they are."
          : "Full bars may be said, striped ones were cut; the thick line is where what may be said ends, the nucleus of top-p. A small stroke marks the model's own probability, at temperature 1."}
        {pick && " Press a token to go on with it instead."}
      </p>
    </section>
  );
}

/** Whether the nucleus ends behind this bar. */
function edge(bars: readonly Bar[], number: number): boolean {
  return !bars[number]!.by && !!bars[number + 1]?.by;
}
