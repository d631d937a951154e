// The verdict on a map and its six tests: value, threshold, passed or failed, and what that means.
import { decimal, fixedPercent } from "../../format";

export interface Check {
  readonly name: string;
  readonly value: number | null;
  readonly threshold: number;
  readonly numbers: Readonly<Record<string, number | null>>;
  readonly passed: boolean;
  readonly done: string;
  readonly means: string;
}

export interface Verdict {
  readonly verdict: "faithful" | "doubtful" | "unfaithful";
  readonly flagged: boolean;
  readonly means: string;
  readonly other: string;
  readonly special_weight: number;
  readonly needed: number;
  readonly decisive: string;
  readonly seed: number;
  readonly checks: readonly Check[];
}

const SIGNS = { faithful: "✓", doubtful: "?", unfaithful: "✕" };
export const SCALE = 3; // the end of a bar, as a multiple of the threshold

export const passedCount = (verdict: Verdict) => verdict.checks.filter((check) => check.passed).length;
export const checkValue = (value: number | null) => (value === null ? "none" : decimal(value));
/** Length of a bar from 0 to 1. */
export const barLength = ({ value, threshold }: Check) => Math.max(0, Math.min(1, (value ?? 0) / (SCALE * threshold)));

export function Headline({ verdict }: { verdict: Verdict }) {
  return (
    <section aria-labelledby="faithfulness-verdict">
      <h2 id="faithfulness-verdict" class={`faithfulness-verdict faithfulness-${verdict.verdict}`}>
        <span class="faithfulness-sign" aria-hidden="true">
          {SIGNS[verdict.verdict]}
        </span>
        {verdict.verdict}
      </h2>
      <p>
        {passedCount(verdict)} of {verdict.checks.length} tests passed: {verdict.means}.
      </p>
      <p class="muted">
        A faithful map passes {verdict.needed} tests, “{verdict.decisive}” among them; if that one fails, the map is unfaithful. The thresholds were fixed before any model was measured.{" "}
        {fixedPercent(verdict.special_weight, 1)} of the map’s weight is on special tokens, which no test counts as words.
      </p>
    </section>
  );
}

export function Checks({ checks }: { checks: readonly Check[] }) {
  return (
    <section aria-labelledby="faithfulness-tests">
      <h2 id="faithfulness-tests">The six tests</h2>
      <ul class="faithfulness-checks">
        {checks.map((check) => (
          <ShowCheck key={check.name} check={check} />
        ))}
      </ul>
    </section>
  );
}

function ShowCheck({ check }: { check: Check }) {
  const numbers = Object.entries(check.numbers).map(([name, value]) => `${name} ${checkValue(value)}`);
  return (
    <li data-check={check.name} class={check.passed ? "faithfulness-passed" : "faithfulness-failed"}>
      <h3>
        <span class="faithfulness-mark">{check.passed ? "✓ passed" : "✕ failed"}</span> {check.name}
      </h3>
      <div class="faithfulness-scale">
        <div class="faithfulness-track" aria-hidden="true">
          <div style={{ width: `${100 * barLength(check)}%` }} />
          <span style={{ left: `${100 / SCALE}%` }} />
        </div>
        <span class="faithfulness-number">
          <strong title={String(check.value)}>{checkValue(check.value)}</strong> of {check.threshold.toFixed(2)} or more
        </span>
      </div>
      <p class="faithfulness-means">{check.value === null ? "The map points at nothing, so there is nothing to test." : check.means}</p>
      <p class="muted faithfulness-done">
        {check.done} <span class="faithfulness-numbers">({numbers.join(", ")})</span>
      </p>
    </li>
  );
}
