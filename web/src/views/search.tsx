// A search, step by step: the tree of what was said and what was not, and a table for every step.
import { setParameters, currentRoute, integerParameter, type Route } from "../route";
import type { Payload, View } from "../view";
import { About, Results, Steps, TreeOf } from "./search/tree_view";
import { fate, type Trace } from "./search/trace";
import { drawTree, treeOf } from "./search/tree";

interface SearchPayload extends Payload {
  readonly trace: Trace;
}

const LEGENDS: Record<Trace["method"], string> = {
  beam:
    "One column for each step, the likeliest beginnings on top. A filled box was kept, one with a double frame ended a text, a pale " +
    "one was passed over. A dagger marks a beginning of which nothing was kept in the next step. The thick line is the best text. " +
    "Percentages are the model's probability of the token; point at a box for more.",
  sample:
    "One column for each token, the likeliest candidates on top. The filled box was chosen, pale ones could have been, and those " +
    "struck through were cut by a filter. Percentages are the model's own probability of the token; point at a box for its chance " +
    "after the filters.",
};

function rowAt(payload: SearchPayload, { parameters }: Route) {
  const { rows } = payload.trace;
  return rows[integerParameter(parameters, "row", rows.length)]!;
}

function Show({ payload }: { payload: SearchPayload }) {
  const here = currentRoute.use();
  const { trace } = payload;
  const row = rowAt(payload, here);
  return (
    <div class="search">
      <p>{LEGENDS[trace.method]}</p>
      <About about={trace.about} />
      {trace.rows.length > 1 && (
        <div class="choices">
          <label>
            Text
            <select value={String(trace.rows.indexOf(row))} onChange={(event) => setParameters({ row: event.currentTarget.value })}>
              {trace.rows.map((one, number) => (
                <option key={number} value={String(number)}>
                  {one.row + 1}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      <Results row={row} />
      <TreeOf row={row} />
      <Steps row={row} method={trace.method} />
    </div>
  );
}

export const search: View<SearchPayload> = {
  name: "search",
  title: "A search, step by step",
  about: "",
  fields: [],
  model: false,
  Show,
  drawing(payload, here) {
    const tree = treeOf(rowAt(payload, here));
    return { width: tree.width, height: tree.height, draw: (painter) => drawTree(painter, tree) };
  },
  table(payload, here) {
    const rows = rowAt(payload, here).steps.flatMap((step) =>
      step.choices.flatMap((choice) =>
        choice.candidates.map((one) => [
          step.step,
          choice.node,
          one.token,
          one.text,
          one.log_probability ?? "-inf",
          one.total ?? "-inf",
          one.chance ?? "",
          fate(one),
        ]),
      ),
    );
    return { headers: ["step", "behind", "token", "text", "log_probability", "total", "chance", "fate"], rows };
  },
};
