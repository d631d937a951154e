// The list of the worst errors, with a search, for all or one cell of the confusion matrix.
import { useState } from "preact/hooks";
import { count, decimal, percent, plural } from "../../format";
import { currentRoute, setParameters } from "../../route";
import type { ExampleError } from "../../types";
import { type EvaluationPayload, errorsOf, selectedCell, shown } from "./payload";

const FEW = 25; // errors that are listed at once

export function Errors({ payload }: { payload: EvaluationPayload }) {
  const route = currentRoute.use();
  const [limit, setLimit] = useState(FEW);
  if (!payload.errors.length) return null;
  const cell = selectedCell(route);
  const query = route.parameters["search"] ?? "";
  const found = errorsOf(payload, cell).filter((error) => searchText(error).includes(query.trim().toLowerCase()));
  const isRegression = payload.residuals !== null;
  const change = (values: Readonly<Record<string, string>>) => {
    setLimit(FEW);
    setParameters(values);
  };
  return (
    <section class="evaluation-errors" aria-labelledby="evaluation-errors">
      <h2 id="evaluation-errors">{isRegression ? "The largest differences" : "The worst errors"}</h2>
      <p class="muted">
        {isRegression
          ? "The predictions that are furthest from the true value come first."
          : "The most confident wrong predictions come first."}
        {payload.errors.length < payload.num_errors &&
          ` ${count(payload.errors.length)} of ${count(payload.num_errors)} are on this page; regard evaluate ` +
            "--errors FILE.csv writes all of them."}
      </p>
      <div class="choices">
        <label>
          Search{" "}
          <input type="search" value={query} onInput={(event) => change({ search: event.currentTarget.value })} />
        </label>
        {cell && (
          <button
            type="button"
            onClick={() => change({ true: "", predicted: "" })}
            aria-label="Show the errors of all cells"
          >
            true {cell.label}, predicted {cell.predicted} ✕
          </button>
        )}
        <span role="status" class="muted">
          {plural(found.length, isRegression ? "example" : "error")}
        </span>
      </div>
      <ol>
        {found.slice(0, limit).map((error, number) => (
          <ErrorItem key={`${error.row} ${number}`} error={error} />
        ))}
      </ol>
      {found.length > limit && (
        <button type="button" onClick={() => setLimit(limit + 4 * FEW)}>
          Show more
        </button>
      )}
    </section>
  );
}

const searchText = (error: ExampleError) =>
  [...Object.values(error.texts), shown(error.label), shown(error.predicted), error.kind, `line ${error.line}`]
    .join("\n")
    .toLowerCase();

function ErrorItem({ error }: { error: ExampleError }) {
  const [first = "", ...others] = Object.entries(error.texts).map(([, text]) => text);
  return (
    <li>
      <p class="evaluation-verdict">
        <span>
          predicted{" "}
          <strong class="evaluation-wrong" dir="auto">
            {shown(error.predicted) || "nothing"}
            {error.confidence !== null && <small> {percent(error.confidence)}</small>}
          </strong>
        </span>
        <span>
          true{" "}
          <strong dir="auto">
            {shown(error.label) || "nothing"}
            {error.probability !== null && <small> {percent(error.probability)}</small>}
          </strong>
        </span>
        {error.kind && <span class="muted">{error.kind}</span>}
        {error.score !== null && (
          <span class="muted">
            {error.confidence === null
              ? `difference ${decimal(error.score, 2, true)}`
              : `F1 ${decimal(error.score, 0)}`}
          </span>
        )}
        <span class="muted">{error.line === null ? `row ${count(error.row)}` : `line ${count(error.line)}`}</span>
      </p>
      <p dir="auto">{first}</p>
      {others.map((text, number) => (
        <p key={number} class="muted" dir="auto">
          {text}
        </p>
      ))}
    </li>
  );
}

/** Rows of the exported table. */
export function errorRows(payload: EvaluationPayload): (string | number)[][] {
  const errors = errorsOf(payload, selectedCell(currentRoute.get()));
  return errors.map((error) => [
    "error",
    `line ${error.line ?? ""} row ${error.row}: predicted ${shown(error.predicted)}, true ${shown(error.label)}`,
    error.confidence ?? error.score ?? "",
    "",
    "",
  ]);
}
