// The confusion matrix; a cell selects its errors.
import { DataTable, ScrollRegion } from "../../components";
import { count, fixedPercent, truncate } from "../../format";
import type { Painter } from "../../painter";
import { currentRoute, setParameters } from "../../route";
import { colors } from "../../theme";
import type { ConfusionMatrix } from "../../types";
import type { Drawing } from "../../view";
import { type Cell, type EvaluationPayload, selectedCell } from "./payload";

const MAX_CLASSES = 30; // of a matrix that is shown

export function Confusions({ payload }: { payload: EvaluationPayload }) {
  const { confusion_matrix: matrix, confusions } = payload;
  if (matrix && matrix.columns.length <= MAX_CLASSES) return <Matrix matrix={matrix} />;
  if (!confusions.length) return null;
  return (
    <section aria-labelledby="evaluation-confusions">
      <h2 id="evaluation-confusions">Most frequent confusions</h2>
      <p class="muted">Select a count to see the errors.</p>
      <DataTable
        label="Most frequent confusions"
        headers={["True", "Predicted", "Count"]}
        rows={confusions.map((one) => [
          one.label,
          one.predicted,
          <CellButton key={one.label} cell={one} text={count(one.count)} />,
        ])}
      />
    </section>
  );
}

function Matrix({ matrix }: { matrix: ConfusionMatrix }) {
  return (
    <section aria-labelledby="evaluation-matrix">
      <h2 id="evaluation-matrix">Confusion matrix</h2>
      <p class="muted">
        True labels are rows, predicted ones columns. Colors show the fraction of the row. Select a cell to see its
        errors.
      </p>
      <ScrollRegion label="Confusion matrix">
        <table class="evaluation-matrix">
          <thead>
            <tr>
              <td />
              {matrix.columns.map((name) => (
                <th key={name} scope="col" title={name} dir="auto">
                  {truncate(name, 14)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {matrix.rows.map((row, i) => (
              <tr key={row}>
                <th scope="row" title={row} dir="auto">
                  {truncate(row, 18)}
                </th>
                {matrix.columns.map((column, j) => (
                  <MatrixCell key={column} matrix={matrix} i={i} j={j} cell={{ label: row, predicted: column }} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollRegion>
    </section>
  );
}

function MatrixCell({ matrix, i, j, cell }: { matrix: ConfusionMatrix; i: number; j: number; cell: Cell }) {
  const value = matrix.counts[i]![j]!;
  const right = cell.label === cell.predicted;
  const style = { "--tint": `${tint(matrix, i, j)}%` };
  return (
    <td
      class={right ? "right" : "wrong"}
      style={style}
      title={`true ${cell.label}, predicted ${cell.predicted}: ${fixedPercent(fraction(matrix, i, j), 1)} of the row`}
    >
      {right || !value ? (
        <span class={value ? "" : "none"}>{count(value)}</span>
      ) : (
        <CellButton cell={cell} text={count(value)} />
      )}
    </td>
  );
}

const fraction = ({ counts }: ConfusionMatrix, i: number, j: number) =>
  counts[i]![j]! /
  Math.max(
    1,
    counts[i]!.reduce((sum, one) => sum + one, 0),
  );

/** Percentage of the full color: small fractions stay visible, and numbers legible. */
const tint = (matrix: ConfusionMatrix, i: number, j: number) => Math.round(45 * Math.sqrt(fraction(matrix, i, j)));

function CellButton({ cell, text }: { cell: Cell; text: string }) {
  const chosen = selectedCell(currentRoute.use());
  const pressed = chosen?.label === cell.label && chosen.predicted === cell.predicted;
  const select = () => {
    setParameters(pressed ? { true: "", predicted: "" } : { true: cell.label, predicted: cell.predicted });
    if (!pressed) document.getElementById("evaluation-errors")?.scrollIntoView({ block: "start", behavior: "instant" });
  };
  return (
    <button
      type="button"
      aria-pressed={pressed}
      aria-label={`${text} errors: true ${cell.label}, predicted ${cell.predicted}`}
      onClick={select}
    >
      {text}
    </button>
  );
}

const SIZE = 44;

export function matrixDrawing({
  confusion_matrix: matrix,
}: EvaluationPayload): (Drawing & { readonly title: string }) | null {
  if (!matrix || matrix.columns.length > MAX_CLASSES) return null;
  const left = 20 + 8 * Math.max(...matrix.rows.map((name) => Math.min(18, name.length)));
  const top = 12 + 7 * Math.max(...matrix.columns.map((name) => Math.min(14, name.length)));
  const draw = (painter: Painter) => {
    const { accent, other, ink } = colors.get();
    matrix.columns.forEach((name, j) =>
      painter.text(truncate(name, 14), left + SIZE * (j + 0.5), top - 8, { rotated: true }),
    );
    matrix.rows.forEach((name, i) => {
      painter.text(truncate(name, 18), left - 8, top + SIZE * (i + 0.5), { align: "right" });
      matrix.columns.forEach((column, j) => {
        painter.rect(
          left + SIZE * j,
          top + SIZE * i,
          SIZE - 2,
          SIZE - 2,
          name === column ? accent : other,
          tint(matrix, i, j) / 100,
        );
        painter.text(count(matrix.counts[i]![j]!), left + SIZE * (j + 0.5), top + SIZE * (i + 0.5), {
          align: "center",
          color: ink,
        });
      });
    });
  };
  return {
    title: "Confusion matrix: true labels are rows, predicted ones columns",
    width: left + SIZE * matrix.columns.length,
    height: top + SIZE * matrix.rows.length,
    draw,
  };
}
