// Why: the tokens that spoke for or against a prediction, and those the model looked at. Knows no server.
import { setParameters, formatRoute, currentRoute, integerParameter } from "../../route";
import { looked, signed, type Evidence, type Said } from "./payload";

interface Strip {
  readonly name: string;
  readonly about: string;
  readonly values: readonly number[];
  readonly signed: boolean;
}

/** The layer whose attention is shown; as many as there are layers means all of them joined. */
export function layerOf(evidence: Evidence, parameters: Readonly<Record<string, string>>): number {
  return integerParameter(parameters, "layer", evidence.attention.length + 1, evidence.attention.length);
}

export function strips(evidence: Evidence, layer: number): readonly Strip[] {
  const joined = layer === evidence.attention.length;
  const { integrated } = evidence;
  const baseline = integrated.baseline === "zero" ? "nothing" : `[${(integrated.baseline ?? "").toUpperCase()}]`;
  return [
    {
      name: "Integrated gradients",
      about:
        `what each token adds to the logit of ${evidence.about}, ${integrated.value.toFixed(3)}; with ${baseline} for every word it is ` +
        `${(integrated.baseline_value ?? 0).toFixed(3)} (the sum is off by ${Math.abs(integrated.completeness_error ?? 0).toExponential(0)})`,
      values: integrated.scores,
      signed: true,
    },
    { name: "Gradient × input", about: "the same, were the model linear", values: evidence.gradient.scores, signed: true },
    {
      name: joined ? "Attention, all layers" : `Attention, layer ${layer}`,
      about: joined
        ? `what reaches ${evidence.tokens[evidence.token]} from each token (rollout)`
        : `where ${evidence.tokens[evidence.token]} looks, the mean of the heads`,
      values: joined ? evidence.rollout : (evidence.attention[layer] ?? []),
      signed: false,
    },
  ];
}

/** How strong each value is beside the strongest word, -1 to 1: special tokens draw much attention, and would outshine all. */
export function strengths(values: readonly number[], special: readonly boolean[]): readonly number[] {
  const words = values.filter((_, number) => !special[number]);
  const most = Math.max(...words.map(Math.abs), 1e-12);
  return values.map((value) => Math.max(-1, Math.min(1, value / most)));
}

export function Why({ said, link }: { said: Said; link?: string }) {
  const here = currentRoute.use();
  const evidence = looked(said, here);
  if (!evidence) return said.why ? <p class="muted">No attention and attribution here: {said.why}.</p> : null;
  const layer = layerOf(evidence, here.parameters);
  const rows = strips(evidence, layer);
  return (
    <section class="task-why" aria-labelledby="why">
      <h2 id="why">Why {evidence.about}?</h2>
      <div class="choices">
        {said.evidence.length > 1 && (
          <label>
            Look into
            <select value={said.evidence.indexOf(evidence)} onChange={(event) => setParameters({ about: event.currentTarget.value })}>
              {said.evidence.map((one, number) => (
                <option key={number} value={number}>
                  {one.about}
                </option>
              ))}
            </select>
          </label>
        )}
        <label>
          Attention of
          <select value={layer} onChange={(event) => setParameters({ layer: event.currentTarget.value })}>
            <option value={evidence.attention.length}>all layers joined</option>
            {evidence.attention.map((_, number) => (
              <option key={number} value={number}>
                layer {number}
              </option>
            ))}
          </select>
        </label>
        {said.evidence.length < (said.prediction.entities?.length ?? 0) && (
          <span class="muted">
            the first {said.evidence.length} of {said.prediction.entities?.length}
          </span>
        )}
        {link && <a href={link}>All heads of this text</a>}
      </div>
      {rows.map((row) => (
        <div key={row.name} class="task-strip-row">
          <h3>{row.name}</h3>
          <p class="muted">{row.about}</p>
          <Tokens evidence={evidence} row={row} />
        </div>
      ))}
      <p class="muted task-key">
        <span class="task-for">for</span> <span class="task-against">against</span> it; each strip is coloured relative to its own strongest word. Attention shows
        where a model looks, not why it decides.
      </p>
      <details>
        <summary>Numbers</summary>
        <Numbers evidence={evidence} rows={rows} />
      </details>
    </section>
  );
}

function Tokens({ evidence, row }: { evidence: Evidence; row: Strip }) {
  const strong = strengths(row.values, evidence.special);
  return (
    <p class="task-strip" dir="auto">
      {evidence.tokens.map((token, number) => {
        const strength = strong[number] ?? 0;
        const value = row.values[number] ?? 0;
        const kind = [strength < 0 && "task-against", evidence.special[number] && "task-special", number === evidence.token && !row.signed && "task-speaker"];
        return (
          <span
            key={number}
            class={kind.filter(Boolean).join(" ")}
            style={{ "--strength": `${Math.round(45 * Math.abs(strength))}%` }}
            title={row.signed ? signed(value) : value.toFixed(3)}
          >
            {token}
          </span>
        );
      })}
    </p>
  );
}

function Numbers({ evidence, rows }: { evidence: Evidence; rows: readonly Strip[] }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Numbers">
      <table class="task-bars task-evidence">
        <thead>
          <tr>
            <th>Token</th>
            {rows.map((row) => (
              <th key={row.name} class="task-number">
                {row.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {evidence.tokens.map((token, number) => (
            <tr key={number}>
              <th scope="row">{token}</th>
              {rows.map((row) => (
                <td key={row.name} class="task-number">
                  {row.signed ? signed(row.values[number] ?? 0) : (row.values[number] ?? 0).toFixed(3)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Where the studio shows every head for the same text. */
export function attentionLink(model: string, texts: readonly string[]): string {
  const [text = "", second = ""] = texts;
  return formatRoute({ view: "attention", parameters: { model, text, ...(second && { text_b: second }) } });
}
