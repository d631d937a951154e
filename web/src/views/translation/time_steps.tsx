// The time slider with the token of each step, and the most probable tokens of the current one.
import { DataTable, Token } from "../../components";
import { fixedPercent, visible } from "../../format";
import { setParameters } from "../../route";
import type { Selection } from "./payload";

export function goToStep(step: number, { hypothesis }: Selection): void {
  setParameters({ step: String(Math.max(0, Math.min(hypothesis.steps.length - 1, step))) });
}

export function TimeSlider({ selection }: { selection: Selection }) {
  const { hypothesis, step } = selection;
  const count = hypothesis.steps.length;
  return (
    <div class="time">
      <label class="slider">
        <span>
          Time step {step + 1} of {count}
        </span>
        <input
          type="range"
          name="step"
          min={1}
          max={count}
          value={step + 1}
          aria-valuetext={`${step + 1} of ${count}: ${visible(hypothesis.steps[step]!.token)}`}
          onInput={(event) => goToStep(Number(event.currentTarget.value) - 1, selection)}
        />
      </label>
      <ol class="steps" aria-label="Tokens of the translation, step by step">
        {hypothesis.steps.map((one, number) => (
          <li key={number}>
            <button
              type="button"
              class={number < step ? "past" : number > step ? "future" : ""}
              aria-pressed={number === step}
              title={`step ${number + 1}: ${fixedPercent(one.probability, 1)}`}
              onClick={() => goToStep(number, selection)}
            >
              <bdi>{visible(one.token)}</bdi>
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}

export function Candidates({ selection: { hypothesis, step } }: { selection: Selection }) {
  const { token, probability, likeliest } = hypothesis.steps[step]!;
  const isSelected = (one: { token: string; probability: number }) => one.token === token && one.probability === probability;
  const rows = likeliest.some(isSelected) ? likeliest : [{ token, probability }, ...likeliest]; // the beam may select another token
  return (
    <div class="candidates">
      <h2>
        Time step {step + 1}: <Token text={visible(token)} /> {fixedPercent(probability, 1)}
      </h2>
      <DataTable
        class="candidates-table"
        rows={rows.map((one) => [
          <bdi>{visible(one.token)}</bdi>,
          { content: <span class="bar" style={{ width: `${100 * one.probability}%` }} />, class: "share" },
          { content: fixedPercent(one.probability, 2), class: "number" },
        ])}
        rowProps={(row) => ({ class: isSelected(rows[row]!) ? "taken" : "" })}
      />
    </div>
  );
}
