// Decoding step by step: the tree of candidates, and a table for every step.
import { Select } from "../components";
import { percent } from "../format";
import { currentRoute, integerParameter, type Route, setParameters } from "../route";
import { thumbnails } from "../thumbnails";
import type { TraceDocument } from "../types";
import type { Payload, View } from "../view";
import { About, allCandidates, drawTree, layoutTree, outcome, Results, Steps, TreeView } from "./decoding/tree_view";

interface DecodingPayload extends Payload {
  readonly trace: TraceDocument;
}

const LEGENDS: Record<TraceDocument["method"], string> = {
  beam:
    "One column per step, the most probable hypotheses on top. A filled box was kept, one with a double frame " +
    "ended a text, a pale one was not " +
    "selected. A dagger marks a hypothesis of which nothing was kept in the next step. The thick line is the best " +
    "text. " +
    "Percentages are the model's probability of the token; point at a box for more.",
  sample:
    "One column per token, the most probable candidates on top. The filled box was sampled, pale ones could have " +
    "been, and a filter cut those " +
    "struck through. Percentages are the model's own probability of the token; point at a box for its probability " +
    "after the filters.",
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
      {trace.rows.length > 1 && (
        <div class="choices">
          <Select
            label="Text"
            options={texts}
            value={trace.rows.indexOf(row)}
            onSelect={(value) => setParameters({ row: value })}
          />
        </div>
      )}
      <Results row={row} />
      <TreeView row={row} />
      <Steps row={row} method={trace.method} />
      <About about={trace.about} />
    </div>
  );
}

/** The best text and its probability. */
function finding({ trace }: DecodingPayload): string {
  const best = trace.rows[0]?.results[0];
  if (!best || best.log_probability === null) return "";
  const steps = trace.rows[0]!.steps.length;
  return (
    `“${best.text.trim()}” in ${steps} steps, with probability ` +
    `${percent(Math.exp(best.log_probability))}${trace.about["model"] ? ` (${String(trace.about["model"])})` : ""}`
  );
}

export const decoding: View<DecodingPayload> = {
  name: "decoding",
  title: "Decoding",
  about:
    "How a text is found: the candidates of every step of a greedy search, a beam search or a sampled text, as a tree.",
  group: "predict",
  examples: [
    { label: "Three beams", values: { text: "Je suis étudiant", num_beams: "3" }, model: "regard-fr-en" },
    { label: "Greedy search", values: { text: "Je suis étudiant", temperature: "0" }, model: "regard-fr-en" },
    { label: "Sampled", values: { text: "Je suis étudiant", temperature: "1", top_p: "0.9" }, model: "regard-fr-en" },
    {
      label: "GPT with four beams",
      values: { text: "The old man went to the", num_beams: "4", max_new_tokens: "8" },
      model: "regard-gpt",
    },
    {
      label: "GPT, sampled",
      values: { text: "This is a story about me and my brothers", max_new_tokens: "12" },
      model: "regard-gpt",
    },
  ],
  travels: { text: "text" },
  Thumbnail: thumbnails.decoding,
  finding,
  verb: "decode",
  prefers: ["translation"],
  excludes: ["text-encoder", "layer-mix", "image", "fine-tuned"],
  fields: [
    { name: "text", label: "Text", start: "Je suis étudiant" },
    { name: "num_beams", label: "Beams", start: "3", optional: true },
    { name: "temperature", label: "Temperature", start: "", optional: true },
    { name: "top_p", label: "Top-p", start: "", optional: true },
    { name: "max_new_tokens", label: "Tokens at most", start: "", optional: true },
  ],
  toRequest(args) {
    const numbers = Object.entries(args).filter(
      ([name, value]) => name !== "text" && name !== "model" && value.trim() !== "",
    );
    return {
      text: args["text"],
      model: args["model"],
      ...Object.fromEntries(numbers.map(([name, value]) => [name, Number(value)])),
    };
  },
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
