// The largest weights of the token in focus, for each selected head.
import { DataTable, Token } from "../../components";
import { headStrip } from "./draw_lines";
import type { Focus, Selection } from "./selection";

const MAX_ROWS = 12;

interface Props {
  readonly selection: Selection;
  readonly focus: Focus | null;
  /** For each head, the weight of each token of the other side. */
  readonly weights: readonly Float32Array[] | null;
}

export function WeightsPanel({ selection, focus, weights }: Props) {
  if (!focus || !weights) {
    return (
      <aside class="weights-panel">
        <p class="muted">Point at a token to see what it attends to, or what attends to it. Press it to lock it; then the arrow keys change layer and head.</p>
      </aside>
    );
  }
  const { rows, columns, heads, source } = selection;
  const [own, other] = focus.side === "row" ? [rows.labels, columns.labels] : [columns.labels, rows.labels];
  const largest = other.map((_, index) => Math.max(...weights.map((list) => list[index]!)));
  const order = other.map((_, index) => index).sort((a, b) => largest[b]! - largest[a]! || a - b).slice(0, MAX_ROWS);
  const headers = heads.map((head, number) => (
    <>
      <span class="swatch" style={{ backgroundImage: headStrip(selection, number) }} />
      {source !== "heads" ? source : heads.length > 3 ? <span aria-label={`head ${head}`}>{head}</span> : `head ${head}`}
    </>
  ));
  const cells = (index: number) =>
    weights.map((list, number) => (
      <>
        <span class="bar" style={{ width: `${100 * list[index]!}%`, backgroundImage: headStrip(selection, number) }} />
        {list[index]!.toFixed(3)}
      </>
    ));
  return (
    <aside class="weights-panel">
      <h3>
        <Token text={own[focus.index]} /> {focus.side === "row" ? "attends to" : "is attended to by"}
      </h3>
      <DataTable
        class="weights"
        label="Weights of the token in focus"
        headers={["token", ...headers]}
        rows={order.map((index) => [other[index], ...cells(index)])}
        rowProps={(row) => ({ "data-index": order[row] })}
      />
      {other.length > MAX_ROWS && <p class="muted note">The {MAX_ROWS} largest of {other.length}; CSV and JSON contain all.</p>}
    </aside>
  );
}
