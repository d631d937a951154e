// The data of the view, and which confusion is selected.
import type { Route } from "../../route";
import type { ViewOf } from "../../view";

export type EvaluationPayload = ViewOf<"evaluate">;
export type ExampleErrors = EvaluationPayload["errors"];

export const MISSED = "(missed)";
export const SPURIOUS = "(spurious)";

/** A cell of the confusion matrix. */
export interface Cell {
  readonly label: string;
  readonly predicted: string;
}

export function selectedCell({ parameters }: Route): Cell | null {
  const { true: label, predicted } = parameters;
  return label !== undefined && predicted !== undefined ? { label, predicted } : null;
}

/** A label or value, a list of them, as text. */
export function shown(value: string | number | readonly string[]): string {
  if (typeof value === "number") return String(Math.round(value * 1000) / 1000);
  return typeof value === "string" ? value : value.join(", ");
}

/** The class of a label in the matrix: the type of "PER: John Smith". An empty one has no counterpart. */
function classOf(value: string | number | readonly string[], task: string, empty: string): string {
  const text = shown(value);
  if (task !== "tag") return text;
  return text ? text.slice(0, text.indexOf(": ")) : empty;
}

export function errorsOf(payload: EvaluationPayload, cell: Cell | null): ExampleErrors {
  if (!cell) return payload.errors;
  const { task } = payload;
  return payload.errors.filter(
    (error) =>
      classOf(error.label, task, SPURIOUS) === cell.label && classOf(error.predicted, task, MISSED) === cell.predicted,
  );
}
