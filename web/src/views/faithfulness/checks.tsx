// The verdict on a map, and the six tests it stands on: number, threshold, passed or failed, and what that means.
import { passedOf, said, type Check, type Verdict } from "./payload";

const SIGN = { faithful: "✓", doubtful: "?", unfaithful: "✕" };
const ROOM = 3; // thresholds that a bar has room for

export function Headline({ verdict }: { verdict: Verdict }) {
  const passed = passedOf(verdict);
  return (
    <section aria-labelledby="faithfulness-verdict">
      <h2 id="faithfulness-verdict" class={`faithfulness-verdict faithfulness-${verdict.verdict}`}>
        <span class="faithfulness-sign" aria-hidden="true">
          {SIGN[verdict.verdict]}
        </span>
        {verdict.verdict}
      </h2>
      <p>
        {passed} of {verdict.checks.length} tests passed: {verdict.means}.
      </p>
      <p class="muted">
        A faithful map passes {verdict.needed} tests, “{verdict.decisive}” among them; if that one fails, the map is unfaithful. The thresholds were fixed before any model was measured.{" "}
        {(100 * verdict.special_weight).toFixed(1)}% of the map’s weight is on special tokens, which no test counts as words.
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
    <li data-check={check.name} class={check.passed ? "faithfulness-passed" : "faithfulness-failed"}>
      <h3>
        <span class="faithfulness-mark">{check.passed ? "✓ passed" : "✕ failed"}</span> {check.name}
      </h3>
      <div class="faithfulness-scale">
        <div class="faithfulness-track" aria-hidden="true">
          <div style={{ width: `${100 * share}%` }} />
          <span style={{ left: `${100 / ROOM}%` }} />
        </div>
        <span class="faithfulness-number">
          <strong title={String(check.value)}>{said(check.value)}</strong> of {check.threshold.toFixed(2)} or more
        </span>
      </div>
      <p class="faithfulness-means">{check.value === null ? "The map points at nothing, so there is nothing to test." : check.means}</p>
      <p class="muted faithfulness-done">
        {check.done} <span class="faithfulness-numbers">({numbers.join(", ")})</span>
      </p>
    </li>
  );
}
