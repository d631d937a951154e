// Tasks: what a tuned model says of a text (a class, entities, an answer), with attention and attributions beside it.
import { modelsChanged } from "../api";
import { setParameters, formatRoute, currentRoute } from "../route";
import type { View } from "../view";
import { attentionLink, Why } from "./tasks/evidence";
import { chosen, summary, type Tasks } from "./tasks/payload";
import { drawing, table } from "./tasks/export";
import { Told } from "./tasks/prediction";
import "./tasks/tasks.css";
import { Train } from "./tasks/train";

function Show({ payload }: { payload: Tasks }) {
  const here = currentRoute.use();
  const { model, predictions, notes, studio } = payload;
  const said = chosen(payload, here);
  const reads = model && model.family !== "vit" && model.family !== "elmo" && model.task !== "choose";
  return (
    <>
      {model && (
        <p class="muted">
          {model.name}: {model.task}, a tuned {model.family} model
        </p>
      )}
      {notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      {studio && !model && <Tuned names={studio.tuned} text={here.parameters["text"]} />}
      {predictions.length > 1 && <Overview payload={payload} />}
      {said && model && (
        <div class="task-split">
          <Told said={said} model={model} />
          <Why said={said} {...(studio && reads && { link: attentionLink(model.name, said.texts) })} />
        </div>
      )}
      {studio && <Train studio={studio} open={!model} />}
    </>
  );
}

function Tuned({ names, text }: { names: readonly string[]; text: string | undefined }) {
  const trained = modelsChanged.use(); // then there is one that this answer does not know of
  if (!names.length && trained) return null;
  if (!names.length) return <p>None of the studio's models is tuned for a task. Train one below, or start the studio with one: regard studio --model DIR.</p>;
  return (
    <p class="task-tuned">
      Tuned models:{" "}
      {names.map((name, number) => (
        <>
          {number > 0 && ", "}
          <a key={name} href={formatRoute({ view: "tasks", parameters: { model: name, ...(text && { text }) } })}>
            {name}
          </a>
        </>
      ))}
    </p>
  );
}

/** All examples of a file, to setParameters one from. */
function Overview({ payload }: { payload: Tasks }) {
  const here = currentRoute.use();
  const now = chosen(payload, here);
  return (
    <ol class="task-overview" aria-label="Examples">
      {payload.predictions.map((said, number) => (
        <li key={number}>
          <button type="button" aria-pressed={said === now} onClick={() => setParameters({ example: String(number), about: "", answer: "" })}>
            <span dir="auto">{said.texts[0]}</span>
            <strong dir="auto">{summary(said)}</strong>
          </button>
        </li>
      ))}
    </ol>
  );
}

export const tasks: View<Tasks> = {
  name: "tasks",
  title: "Tasks",
  about: "Let a tuned model do its task: classes with probabilities, entities, answers; and see what it stands on.",
  model: true,
  suits: ["tuned", "reader"],
  fields: [
    { name: "text", label: "Text, or a question", lines: 2, start: "Thank you so much, this is the best help I ever got in New York." },
    { name: "text_b", label: "Second text, the text that holds the answer, or endings", start: "", optional: true },
  ],
  Show,
  drawing,
  table,
};
