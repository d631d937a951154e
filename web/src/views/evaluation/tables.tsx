// Scores of classes, of groups of questions, and of entities by scheme.
import { useState } from "preact/hooks";
import { ButtonGroup, DataTable } from "../../components";
import { count, decimal } from "../../format";
import type { EvaluationPayload } from "./payload";

const FEW = 30; // classes that are shown at first
const ORDERS = { given: "Given", f1: "Lowest F1", support: "Most frequent" };

export function ClassTable({ payload: { classes, task } }: { payload: EvaluationPayload }) {
  const [order, setOrder] = useState("given");
  const [all, setAll] = useState(false);
  if (!classes.length) return null;
  const sorted =
    order === "given" ? classes : [...classes].sort((a, b) => (order === "f1" ? a.f1 - b.f1 : b.support - a.support));
  const listed = all ? sorted : sorted.slice(0, FEW);
  const noun = task === "tag" ? "type" : task === "choose" ? "position" : "class";
  return (
    <section aria-labelledby="evaluation-classes">
      <h2 id="evaluation-classes">Scores of each {noun}</h2>
      {classes.length > 2 && (
        <div class="choices">
          <ButtonGroup title="Order" options={ORDERS} value={order} onSelect={setOrder} />
        </div>
      )}
      <DataTable
        class="data-table evaluation-classes"
        label={`Scores of each ${noun}`}
        headers={[noun, "Precision", "Recall", "F1", "Support"]}
        rows={listed.map((one) => [
          one.label,
          ...[one.precision, one.recall, one.f1].map((value, i) => <Bar key={i} value={value} />),
          count(one.support),
        ])}
      />
      {listed.length < classes.length && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {count(classes.length)}
        </button>
      )}
    </section>
  );
}

/** A score with a bar of that length. */
function Bar({ value, text }: { value: number; text?: string }) {
  return (
    <span class="evaluation-bar">
      <i style={{ width: `${value}%` }} aria-hidden="true" />
      <span>{text ?? decimal(value, 1)}</span>
    </span>
  );
}

const TITLES: Readonly<Record<string, string>> = {
  question: "By kind of question",
  answer: "By length of the answer",
  answerable: "With and without an answer",
};

export function Groups({ payload: { groups } }: { payload: EvaluationPayload }) {
  return (
    <>
      {[...new Set(groups.map((group) => group.by))].map((by) => (
        <section key={by} aria-labelledby={`evaluation-by-${by}`}>
          <h2 id={`evaluation-by-${by}`}>{TITLES[by] ?? by}</h2>
          <DataTable
            class="data-table evaluation-classes"
            label={TITLES[by] ?? by}
            headers={["", "F1", "95%", "Exact match", "Questions"]}
            rows={groups
              .filter((group) => group.by === by)
              .map((group) => [
                group.group,
                <Bar key="f1" value={group.f1} />,
                <span
                  key="interval"
                  class="muted"
                >{`${decimal(group.f1_interval[0], 1)} to ${decimal(group.f1_interval[1], 1)}`}</span>,
                decimal(group.exact_match, 1),
                count(group.n),
              ])}
          />
        </section>
      ))}
    </>
  );
}

const SCHEMES: Readonly<Record<string, string>> = {
  strict: "type and ends",
  exact: "ends only",
  partial: "an overlap counts half",
  type: "type, any overlap",
};

export function Schemes({ payload: { schemes } }: { payload: EvaluationPayload }) {
  if (!schemes.length) return null;
  return (
    <section aria-labelledby="evaluation-schemes">
      <h2 id="evaluation-schemes">What counts as correct</h2>
      <p class="muted">The four schemes of nervaluate; precision, recall and F1 above are strict.</p>
      <DataTable
        class="data-table evaluation-classes"
        label="Scores by scheme"
        headers={["Scheme", "Precision", "Recall", "F1", "Incorrect", "Partial", "Missed", "Spurious"]}
        rows={schemes.map((one) => [
          <>
            {one.scheme} <span class="muted">{SCHEMES[one.scheme]}</span>
          </>,
          decimal(one.precision, 1),
          decimal(one.recall, 1),
          <Bar key="f1" value={one.f1} />,
          ...[one.incorrect, one.partial, one.missed, one.spurious].map(count),
        ])}
      />
    </section>
  );
}
