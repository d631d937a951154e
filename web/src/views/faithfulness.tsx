// Faithfulness: may the attention map of a classified text be read as the reason for its class? Six tests and a verdict.
import { setParameters, formatRoute, currentRoute } from "../route";
import type { View } from "../view";
import "./faithfulness/faithfulness.css";
import { Checks, Headline } from "./faithfulness/checks";
import { summary, type Faithfulness } from "./faithfulness/payload";
import { drawing, table } from "./faithfulness/export";
import { Strips } from "./faithfulness/strips";

function Show({ payload }: { payload: Faithfulness }) {
  const { grounds, model, verdict, studio } = payload;
  return (
    <>
      {model && grounds && (
        <>
          <p class="faithfulness-answer" dir="auto">
            {summary(payload)}
          </p>
          <p class="muted">
            {model.name}: {{ fill: `a ${model.family} model, at the ${grounds.place}`, next: `a ${model.family} model, the next token` }[model.task] ?? `${model.task}, a tuned ${model.family} model`}
          </p>
          {studio && <Choices payload={payload} />}
        </>
      )}
      {!verdict && <Notes payload={payload} />}
      {grounds && (
        <div class="faithfulness">
          {verdict && <Headline verdict={verdict} />}
          <Strips grounds={grounds} />
          {verdict && <Checks checks={verdict.checks} />}
        </div>
      )}
    </>
  );
}

/** Why there is no verdict, and where to get one. */
function Notes({ payload }: { payload: Faithfulness }) {
  const { parameters } = currentRoute.use();
  const { studio, notes } = payload;
  const text = parameters["text"] ?? payload.texts[0] ?? "";
  return (
    <div class="faithfulness-notes">
      {notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      {studio && payload.example && (
        <p>
          See its map and attributions with a blank in place of a word:{" "}
          <a class="faithfulness-example" href={formatRoute({ view: "faithfulness", parameters: { model: payload.example.model, text: payload.example.text } })}>
            {payload.example.text}
          </a>
        </p>
      )}
      {studio && (
        <p>
          {studio.tuned.length ? "Tuned models here: " : "None of the studio's models is tuned for a task. "}
          {studio.tuned.map((name, number) => (
            <>
              {number > 0 && ", "}
              <a key={name} href={formatRoute({ view: "faithfulness", parameters: { model: name, text } })}>
                {name}
              </a>
            </>
          ))}
          {studio.tuned.length ? ". " : ""}
          <a href={formatRoute({ view: "tasks", parameters: parameters["model"] ? { model: parameters["model"], text } : { text } })}>Train a classifier in Tasks</a>, with a file of texts and labels, or start the studio with one: regard
          studio --model DIR.
        </p>
      )}
    </div>
  );
}

/** Which class, and which map. */
function Choices({ payload }: { payload: Faithfulness }) {
  const { model, asked, grounds, texts } = payload;
  if (!model || !grounds) return null;
  const [text = "", second = ""] = texts;
  const put = (name: string) => (event: { currentTarget: HTMLSelectElement }) => setParameters({ text, text_b: second, [name]: event.currentTarget.value });
  return (
    <div class="choices">
      {payload.verdict && (
        <label>
          Class
          <select value={asked.label ?? ""} onChange={put("label")}>
            <option value="">the predicted one</option>
            {model.labels.map((label) => (
              <option key={label}>{label}</option>
            ))}
          </select>
        </label>
      )}
      <label>
        Map of layer
        <select value={String(grounds.layer)} onChange={put("layer")}>
          {Array.from({ length: model.depth }, (_, layer) => (
            <option key={layer} value={layer}>
              {layer}
            </option>
          ))}
        </select>
      </label>
      <label>
        Head
        <select value={grounds.head === null ? "" : String(grounds.head)} onChange={put("head")}>
          <option value="">mean of all</option>
          {Array.from({ length: model.heads }, (_, head) => (
            <option key={head} value={head}>
              {head}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

export const faithfulness: View<Faithfulness> = {
  name: "faithfulness",
  title: "Faithfulness",
  about: "A model looks at the right word. Is that its reason? Six tests of the shown attention map of a classifier, with a verdict; beside it what gradients say.",
  model: true,
  suits: ["tuned", "reader", "writer"],
  verb: "Judge",
  fields: [
    { name: "text", label: "Text to classify", lines: 2, start: "Thank you so much, this is the best help I ever got in New York." },
    { name: "text_b", label: "Second text, for pairs", start: "", optional: true },
    { name: "label", label: "Class", start: "", hidden: true },
    { name: "layer", label: "Layer", start: "", hidden: true },
    { name: "head", label: "Head", start: "", hidden: true },
  ],
  Show,
  drawing,
  table,
};
