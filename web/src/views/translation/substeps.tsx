// The four sub-steps of one look, with their numbers: the encoder's states, their scores, softmax and weighted states,
// and the context vector that is their sum.
import { setParameters } from "../../route";
import { useWidth } from "../../canvas";
import { visible } from "../search/trace";
import { headsOf, SUBSTEPS, type Choice, type Look } from "./payload";
import { HIGH, largest, Strip } from "./strip";
import { asker, narration } from "./explanations";

function numeral(value: number, digits = 3): string {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export function Substeps({ choice, look }: { choice: Choice; look: Look }) {
  const { shown, model, step } = choice;
  const lines = narration(choice);
  return (
    <section class="substeps" aria-label="Encoder-decoder attention">
      <h2>Encoder-decoder attention at time step {step + 1}</h2>
      <p class="muted">
        {model.name}: {headsOf(choice)}
      </p>
      <fieldset class="parts">
        <legend class="muted">Sub-steps up to</legend>
        <span class="group">
          {SUBSTEPS.map((name, number) => (
            <button key={name} type="button" aria-pressed={number + 1 === shown} onClick={() => setParameters({ sub: number === 3 ? "" : String(number + 1) })}>
              {number + 1}. {name}
            </button>
          ))}
        </span>
      </fieldset>
      <ol class="narration">
        {lines.slice(0, shown).map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ol>
      <Numbers choice={choice} look={look} />
    </section>
  );
}

function Numbers({ choice, look }: { choice: Choice; look: Look }) {
  const { shown, d, payload, model, mean, heads } = choice;
  const [element, width] = useWidth<HTMLTableCellElement>();
  const [weighted, wide] = useWidth<HTMLTableCellElement>();
  const [states, values] = [largest(look.states), largest(look.values)];
  const strip = Math.max(24, width - 10);
  const strong = look.weights.reduce((best, weight, at) => (weight > look.weights[best]! ? at : best), 0);
  const value = model.kind === "transformer" ? "v" : "h";
  const press = (next: number) => setParameters({ d: String(next) });
  const recurrent = model.kind !== "transformer";
  return (
    <>
      {look.query && shown > 1 && (
        <p class="query">
          <span>{asker(choice)}:</span> <Strip vector={look.query} most={largest([look.query])} width={Math.min(420, Math.max(120, strip))} />
        </p>
      )}
      <div class="wide" tabIndex={0} role="region" aria-label="States, scores, weights and their products">
        <table class={`looked upto${shown}`}>
          <thead>
            <tr>
              <th scope="col">source</th>
              <th scope="col" ref={element} class="vector">
                1. state{recurrent ? " h" : ""}
              </th>
              {shown > 1 && <th scope="col">2. score</th>}
              {shown > 2 && <th scope="col" class="soft">3. softmax</th>}
              {shown > 2 && (
                <th scope="col" ref={weighted} class="vector">
                  × {value}
                </th>
              )}
              {shown > 2 && <th scope="col">{value}[{d}]</th>}
              {shown > 2 && <th scope="col">× {value}[{d}]</th>}
            </tr>
          </thead>
          <tbody>
            {payload.source.tokens.map((token, at) => (
              <tr key={at} class={shown > 2 && at === strong ? "strong" : ""}>
                <th scope="row">
                  <bdi class="token">{visible(token)}</bdi>
                </th>
                <td class="vector">
                  <Strip vector={look.states[at]!} most={states} width={strip} {...(recurrent && { d, onChoose: press })} />
                </td>
                {shown > 1 && <td class="number score">{look.scores ? numeral(look.scores[at]!) : "–"}</td>}
                {shown > 2 && (
                  <td class="number weight">
                    <span class="bar" style={{ width: `${100 * look.weights[at]!}%` }} />
                    {numeral(look.weights[at]!)}
                  </td>
                )}
                {shown > 2 && (
                  <td class="vector">
                    <Strip vector={look.weighted[at]!} most={values} width={Math.max(24, wide - 10)} d={d} onChoose={press} />
                  </td>
                )}
                {shown > 2 && <td class="number value">{numeral(look.values[at]![d]!)}</td>}
                {shown > 2 && <td class="number product">{numeral(look.weighted[at]![d]!, 4)}</td>}
              </tr>
            ))}
          </tbody>
          {shown > 3 && (
            <tfoot>
              <tr>
                <th scope="row" colSpan={3}>
                  4. sum: the context vector
                </th>
                <td class="number">{numeral(look.weights.reduce((a, b) => a + b, 0))}</td>
                <td class="vector" style={{ height: `${HIGH + 8}px` }}>
                  <Strip vector={look.context} most={values} width={Math.max(24, wide - 10)} d={d} onChoose={press} />
                </td>
                <td />
                <td class="number context">{numeral(look.context[d]!, 4)}</td>
              </tr>
            </tfoot>
          )}
        </table>
      </div>
      {shown > 2 && (
        <label class="which">
          <span class="muted">
            Which of the {look.context.length} numbers is written out
            {mean && ` (this one is of head ${heads[Math.floor((d * heads.length) / look.context.length)]}, and is multiplied by that head’s own weight)`}: press a strip, or
          </span>
          <input type="number" name="d" min={0} max={look.context.length - 1} value={d} onInput={(event) => setParameters({ d: event.currentTarget.value })} />
        </label>
      )}
    </>
  );
}
