// Component ablation: the loss of the text and the model's output without each part.
import { setParameters } from "../../route";
import { seen, type Asked, type FigurePayload, type Outcome } from "./payload";

export function Switches({ payload }: { payload: FigurePayload }) {
  const press = (name: string) => {
    const off = payload.components.filter((one) => (one.name === name ? !one.removed : one.removed)).map((one) => one.name);
    // The text goes along: where it is still the one that the form began with, the address does not have it.
    setParameters({ text: payload.text, target: payload.given, without: off.join(",") });
  };
  const reasons = payload.components.filter((one) => one.disabled);
  return (
    <>
      <div class="choices">
        <fieldset>
          <legend>Remove</legend>
          {payload.components.map((one) => (
            <button key={one.name} type="button" aria-pressed={one.removed} disabled={one.disabled !== null || !payload.studio} onClick={() => press(one.name)}>
              {one.title}
            </button>
          ))}
        </fieldset>
      </div>
      {reasons.map((one) => (
        <p key={one.name} class="muted">
          {one.title}: {one.disabled}.
        </p>
      ))}
      {!payload.studio && <p class="muted">This file holds one run of the model. To remove other parts, use --without or the studio.</p>}
    </>
  );
}

export const nameOf = (outcome: Outcome) => outcome.without.map((name) => `no ${name}`).join(", ") || "intact model";
export const isNow = (payload: FigurePayload, outcome: Outcome) => [...outcome.without].sort().join() === [...payload.without].sort().join();

export function Damage({ payload }: { payload: FigurePayload }) {
  const { ablation } = payload;
  const whole = ablation.outcomes[0]!;
  const now = ablation.outcomes.find((one) => isNow(payload, one)) ?? whole;
  return (
    <section aria-labelledby="damage" class="figure-damage">
      <h2 id="damage">Effect of removing each part</h2>
      <p class="muted">
        Loss: {ablation.measure}.{payload.target !== null && ` The translation is “${payload.target}”${payload.given ? "" : ", the intact model’s own"}.`}
      </p>
      <div class="wide" tabIndex={0} role="region" aria-label="Effect of removing each part">
        <table class="figure-numbers">
          <thead>
            <tr>
              <th scope="col">without</th>
              <th scope="col">loss here</th>
              <th scope="col">change</th>
              {ablation.sentences.length > 0 && <th scope="col">loss of {ablation.sentences.length} built-in sentences</th>}
              {ablation.sentences.length > 0 && <th scope="col">change</th>}
              <th scope="col" class="figure-says">output</th>
            </tr>
          </thead>
          <tbody>
            {ablation.outcomes.map((one) => (
              <tr key={nameOf(one)} class={one === now ? "figure-now" : ""} {...(one === now && { "aria-current": "true" as const })}>
                <th scope="row">{nameOf(one)}</th>
                <td>{loss(one.loss)}</td>
                <td>{one === whole ? "" : change(one.loss, whole.loss)}</td>
                {ablation.sentences.length > 0 && <td>{loss(one.sentences_loss)}</td>}
                {ablation.sentences.length > 0 && <td>{one === whole ? "" : change(one.sentences_loss, whole.sentences_loss)}</td>}
                <td class="figure-says" dir="auto">
                  {one.output || "nothing"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {ablation.remarks.map((remark) => (
        <p key={remark}>{remark}</p>
      ))}
      {ablation.sentences.length > 0 ? (
        <details>
          <summary>The {ablation.sentences.length} built-in sentences</summary>
          <ul>
            {ablation.sentences.map(([text, target]) => (
              <li key={text}>{target === null ? text : `${text} → ${target}`}</li>
            ))}
          </ul>
        </details>
      ) : (
        <p class="muted">Only this text is measured: there are no built-in sentences in this model’s languages.</p>
      )}
      <h3>Token by token{now === whole ? "" : `, ${nameOf(now)}`}</h3>
      <Places before={whole.predictions} after={now === whole ? null : now.predictions} />
    </section>
  );
}

const loss = (value: number | null) => (value === null ? "–" : value.toFixed(3));
/** With its sign taken after rounding. */
function change(value: number | null, before: number | null): string {
  if (value === null || before === null) return "–";
  const size = Math.abs(value - before).toFixed(3);
  return `${value < before && Number(size) ? "−" : "+"}${size}`;
}
const share = (value: number | null) => (value === null ? "–" : `${(100 * value).toFixed(1)}%`);

function Places({ before, after }: { before: readonly Asked[]; after: readonly Asked[] | null }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Token by token">
      <table class="figure-numbers">
        <thead>
          <tr>
            <th scope="col">right</th>
            <th scope="col">{after ? "whole" : "probability"}</th>
            {after && <th scope="col">now</th>}
            <th scope="col" class="figure-says">likeliest {after ? "now" : ""}</th>
          </tr>
        </thead>
        <tbody>
          {before.map((one, number) => (
            <tr key={number}>
              <th scope="row">{one.token === null ? "a blank" : seen(one.token)}</th>
              <td>{share(one.probability)}</td>
              {after && <td>{share(after[number]!.probability)}</td>}
              <td class="figure-says">
                {(after ?? before)[number]!.best.map(([word, value], rank) => (
                  <span key={rank}>
                    <span class="token">{seen(word)}</span> {share(value)}{" "}
                  </span>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
