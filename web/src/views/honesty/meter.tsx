// The verdict on a map, and the six tests it stands on: number, threshold, passed or failed, and what that means.
import { passedOf, said, type Check, type Verdict } from "./payload";

const SIGN = { honest: "✓", doubtful: "?", decoration: "✕" };
const ROOM = 3; // thresholds that a bar has room for

export function Headline({ verdict }: { verdict: Verdict }) {
  const passed = passedOf(verdict);
  return (
    <section aria-labelledby="honesty-verdict">
      <h2 id="honesty-verdict" class={`honesty-verdict honesty-${verdict.verdict}`}>
        <span class="honesty-sign" aria-hidden="true">
          {SIGN[verdict.verdict]}
        </span>
        {verdict.verdict}
      </h2>
      <p>
        {passed} of {verdict.checks.length} tests passed: {verdict.means}.
      </p>
      <p class="quiet">
        Honest needs {verdict.needed}, “{verdict.decisive}” among them; where that one fails, it is decoration. The thresholds were fixed before any model was measured.{" "}
        {(100 * verdict.special_weight).toFixed(1)}% of the map’s weight is on special tokens, which no test counts as words.
      </p>
    </section>
  );
}

export function Checks({ checks }: { checks: readonly Check[] }) {
  return (
    <section aria-labelledby="honesty-tests">
      <h2 id="honesty-tests">The six tests</h2>
      <ul class="honesty-checks">
        {checks.map((check) => (
          <One key={check.name} check={check} />
        ))}
      </ul>
    </section>
  );
}

function One({ check }: { check: Check }) {
  const share = Math.max(0, Math.min(1, (check.value ?? 0) / (ROOM * check.threshold)));
  const numbers = Object.entries(check.numbers).map(([name, value]) => `${name} ${said(value)}`);
  return (
    <li data-check={check.name} class={check.passed ? "honesty-passed" : "honesty-failed"}>
      <h3>
        <span class="honesty-mark">{check.passed ? "✓ passed" : "✕ failed"}</span> {check.name}
      </h3>
      <div class="honesty-scale">
        <div class="honesty-track" aria-hidden="true">
          <div style={{ width: `${100 * share}%` }} />
          <span style={{ left: `${100 / ROOM}%` }} />
        </div>
        <span class="honesty-number">
          <strong title={String(check.value)}>{said(check.value)}</strong> of {check.threshold.toFixed(2)} or more
        </span>
      </div>
      <p class="honesty-means">{check.value === null ? "The map points at nothing, so there is nothing to test." : check.means}</p>
      <p class="quiet honesty-done">
        {check.done} <span class="honesty-numbers">({numbers.join(", ")})</span>
      </p>
    </li>
  );
}
