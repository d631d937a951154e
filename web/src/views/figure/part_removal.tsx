// Buttons that remove parts of the model, and the effect of each: the loss of the text and the model's output.
import { inStudio } from "../../api";
import { DataTable } from "../../components";
import { setParameters } from "../../route";
import type { AblationOutcome, TokenPrediction } from "../../types";
import { visibleToken, type FigurePayload } from "./payload";

export function RemoveButtons({ payload }: { payload: FigurePayload }) {
  const press = (name: string) => {
    const off = payload.components.filter((one) => (one.name === name ? !one.removed : one.removed)).map((one) => one.name);
    // With the text: the route does not contain the initial one.
    setParameters({ text: payload.text, target: payload.given, without: off.join(",") });
  };
  return (
    <>
      <div class="choices">
        <fieldset>
          <legend>Remove</legend>
          {payload.components.map((one) => (
            <button key={one.name} type="button" aria-pressed={one.removed} disabled={one.disabled !== null || !inStudio()} onClick={() => press(one.name)}>
              {one.title}
            </button>
          ))}
        </fieldset>
      </div>
      {payload.components
        .filter((one) => one.disabled)
        .map((one) => (
          <p key={one.name} class="muted">
            {one.title}: {one.disabled}.
          </p>
        ))}
      {!inStudio() && <p class="muted">This file contains one run of the model. To remove other parts, use --without or the studio.</p>}
    </>
  );
}

export const nameOf = ({ without }: AblationOutcome) => without.map((name) => `no ${name}`).join(", ") || "intact model";

export function PartRemoval({ payload }: { payload: FigurePayload }) {
  const { measure, outcomes, sentences, remarks } = payload.ablation;
  const intact = outcomes[0]!;
  const removed = [...payload.without].sort().join();
  const current = outcomes.find((one) => [...one.without].sort().join() === removed) ?? intact;
  const wide = (content: string) => ({ content, class: "figure-output" });
  return (
    <section aria-labelledby="part-removal" class="figure-removal">
      <h2 id="part-removal">Effect of removing each part</h2>
      <p class="muted">
        Loss: {measure}.{payload.target !== null && ` The translation is “${payload.target}”${payload.given ? "" : ", the output of the intact model"}.`}
      </p>
      <DataTable
        class="figure-numbers"
        label="Effect of removing each part"
        headers={["without", "loss here", "change", ...(sentences.length ? [`loss of ${sentences.length} built-in sentences`, "change"] : []), wide("output")]}
        rows={outcomes.map((one) => [
          nameOf(one),
          formatLoss(one.loss),
          one === intact ? "" : formatChange(one.loss, intact.loss),
          ...(sentences.length ? [formatLoss(one.sentences_loss), one === intact ? "" : formatChange(one.sentences_loss, intact.sentences_loss)] : []),
          wide(one.output || "nothing"),
        ])}
        rowProps={(row) => (outcomes[row] === current ? { class: "figure-current", "aria-current": "true" } : {})}
      />
      {remarks.map((remark) => (
        <p key={remark}>{remark}</p>
      ))}
      {sentences.length > 0 ? (
        <details>
          <summary>The {sentences.length} built-in sentences</summary>
          <ul>
            {sentences.map(([text, target]) => (
              <li key={text}>{target === null ? text : `${text} → ${target}`}</li>
            ))}
          </ul>
        </details>
      ) : (
        <p class="muted">Only this text is measured: there are no built-in sentences in the languages of this model.</p>
      )}
      <h3>Token by token{current === intact ? "" : `, ${nameOf(current)}`}</h3>
      <TokenTable before={intact.predictions} after={current === intact ? null : current.predictions} />
    </section>
  );
}

export const formatLoss = (value: number | null) => (value === null ? "–" : value.toFixed(3));
const formatProbability = (value: number | null) => (value === null ? "–" : `${(100 * value).toFixed(1)}%`);

export function formatChange(value: number | null, before: number | null): string {
  if (value === null || before === null) return "–";
  const magnitude = Math.abs(value - before).toFixed(3);
  return `${value < before && Number(magnitude) ? "−" : "+"}${magnitude}`;
}

function TokenTable({ before, after }: { before: readonly TokenPrediction[]; after: readonly TokenPrediction[] | null }) {
  const words = (best: TokenPrediction["best"]) => ({
    class: "figure-output",
    content: best.map(([word, value], rank) => (
      <span key={rank}>
        <span class="token">{visibleToken(word)}</span> {formatProbability(value)}{" "}
      </span>
    )),
  });
  return (
    <DataTable
      class="figure-numbers"
      label="Token by token"
      headers={["correct token", after ? "intact model" : "probability", ...(after ? ["now"] : []), { content: `most probable${after ? " now" : ""}`, class: "figure-output" }]}
      rows={before.map((one, number) => [
        one.token === null ? "a blank" : visibleToken(one.token),
        formatProbability(one.probability),
        ...(after ? [formatProbability(after[number]!.probability)] : []),
        words((after ?? before)[number]!.best),
      ])}
    />
  );
}
