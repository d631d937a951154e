// The time slider: which token is said at which step, how likely it was, and what else was likely.
import { setParameters } from "../../route";
import { visible } from "../search/trace";
import type { Choice } from "./payload";

export const percent = (share: number, digits = 1) => `${(100 * share).toFixed(digits)}%`;

export function go(step: number, { told }: Choice): void {
  setParameters({ step: String(Math.max(0, Math.min(told.steps.length - 1, step))) });
}

/** Left and right change the step wherever the focus is in the view but in a field; the slider itself does so anyway. */
export function arrows(event: KeyboardEvent, choice: Choice): void {
  const target = event.target as HTMLElement;
  if (target.matches("select, input, textarea") || event.ctrlKey || event.altKey || event.metaKey) return;
  const change = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!change) return;
  event.preventDefault();
  go(choice.step + change, choice);
}

export function Time({ choice }: { choice: Choice }) {
  const { told, step } = choice;
  const last = told.steps.length - 1;
  return (
    <div class="time">
      <label class="slider">
        <span>
          Time step {step + 1} of {last + 1}
        </span>
        <input
          type="range"
          name="step"
          min={1}
          max={last + 1}
          value={step + 1}
          aria-valuetext={`${step + 1} of ${last + 1}: ${visible(told.steps[step]!.token)}`}
          onInput={(event) => go(Number(event.currentTarget.value) - 1, choice)}
        />
      </label>
      <ol class="said" aria-label="What is said, step by step">
        {told.steps.map((one, number) => (
          <li key={number}>
            <button
              type="button"
              class={number < step ? "past" : number > step ? "future" : ""}
              aria-pressed={number === step}
              title={`step ${number + 1}: ${percent(one.probability)}`}
              onClick={() => go(number, choice)}
            >
              <bdi>{visible(one.token)}</bdi>
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}

export function Likely({ choice }: { choice: Choice }) {
  const { told, step } = choice;
  const { token, probability, likeliest } = told.steps[step]!;
  const others = likeliest.filter((one) => one.token !== token || one.probability !== probability);
  const missing = others.length === likeliest.length; // the beam took what was not among the likeliest
  const rows = missing ? [{ token, probability }, ...likeliest] : likeliest;
  return (
    <div class="likely">
      <h2>
        Time step {step + 1} says <bdi class="token">{visible(token)}</bdi>: {percent(probability)}
      </h2>
      <table aria-label="The likeliest tokens of this step">
        <tbody>
          {rows.map((one, number) => (
            <tr key={number} class={one.token === token && one.probability === probability ? "taken" : ""}>
              <th scope="row">
                <bdi>{visible(one.token)}</bdi>
              </th>
              <td class="share">
                <span class="bar" style={{ width: `${100 * one.probability}%` }} />
              </td>
              <td class="number">{percent(one.probability, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
