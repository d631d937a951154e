// Decoding step by step: the tree of candidates, and a table for every step.
import { Select } from "../components";
import { currentRoute, integerParameter, type Route, setParameters } from "../route";
import type { TraceDocument } from "../types";
import type { Payload, View } from "../view";
import { About, allCandidates, drawTree, layoutTree, outcome, Results, Steps, TreeView } from "./decoding/tree_view";

interface DecodingPayload extends Payload {
  readonly trace: TraceDocument;
}

const LEGENDS: Record<TraceDocument["method"], string> = {
  beam:
    "One column per step, the most probable hypotheses on top. A filled box was kept, one with a double frame ended a text, a pale one was not " +
    "selected. A dagger marks a hypothesis of which nothing was kept in the next step. The thick line is the best text. " +
    "Percentages are the model's probability of the token; point at a box for more.",
  sample:
    "One column per token, the most probable candidates on top. The filled box was sampled, pale ones could have been, and a filter cut those " +
    "struck through. Percentages are the model's own probability of the token; point at a box for its probability after the filters.",
};

function rowAt({ trace }: DecodingPayload, { parameters }: Route) {
  return trace.rows[integerParameter(parameters, "row", trace.rows.length)]!;
}

function Show({ payload }: { payload: DecodingPayload }) {
  const { trace } = payload;
  const row = rowAt(payload, currentRoute.use());
  const texts = Object.fromEntries(trace.rows.map((one, number) => [number, one.row + 1]));
  return (
    <div class="decoding">
      <p>{LEGENDS[trace.method]}</p>
      <About about={trace.about} />
      {trace.rows.length > 1 && (
        <div class="choices">
          <Select label="Text" options={texts} value={trace.rows.indexOf(row)} onSelect={(value) => setParameters({ row: value })} />
        </div>
      )}
      <Results row={row} />
      <TreeView row={row} />
      <Steps row={row} method={trace.method} />
    </div>
  );
}

export const decoding: View<DecodingPayload> = {
  name: "decoding",
  title: "A search, step by step",
  about: "",
  fields: [],
  Show,
  drawing(payload, route) {
    const tree = layoutTree(rowAt(payload, route));
    return { width: tree.width, height: tree.height, draw: (painter) => drawTree(painter, tree) };
  },
  table: (payload, route) => ({
    headers: ["step", "node", "token", "text", "log_probability", "total", "sampling_probability", "outcome"],
    rows: allCandidates(rowAt(payload, route)).map(({ step, node, candidate: one }) => [
      step,
      node,
      one.token,
      one.text,
      one.log_probability ?? "-inf",
      one.total ?? "-inf",
      one.chance ?? "",
      outcome(one),
    ]),
  }),
};
