// Tasks: the predictions of a fine-tuned model (a class, entities, an answer) with attention and attributions.
import { inStudio } from "../api";
import { Notes } from "../components";
import { percent, truncate } from "../format";
import { MARGIN, type Part, stack, textPart, tokenStripPart, wrap } from "../painter";
import { currentRoute, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { Drawing, Table, View } from "../view";
import { BANK_NOTICE, CHAT, OFFER } from "./tasks/examples";
import {
  EvidencePanel,
  evidenceStrips,
  namedProbabilities,
  ShowPrediction,
  selectedEvidence,
  selectedPrediction,
  summary,
  type TasksPayload,
} from "./tasks/prediction";
import "./tasks/tasks.css";
import { Train } from "./tasks/train";

function Show({ payload }: { payload: TasksPayload }) {
  const route = currentRoute.use();
  const { model, predictions, notes } = payload;
  const prediction = selectedPrediction(payload, route);
  return (
    <>
      <p class="muted">
        {model.name}: {model.task}, a fine-tuned {model.family} model
      </p>
      <Notes notes={notes} />
      {predictions.length > 1 && <Overview payload={payload} />}
      {prediction && (
        <div class="task-split">
          <ShowPrediction prediction={prediction} model={model} />
          <EvidencePanel prediction={prediction} {...(inStudio() && { model: model.name })} />
        </div>
      )}
    </>
  );
}

/** All examples of a file, to select one. */
function Overview({ payload }: { payload: TasksPayload }) {
  const selected = selectedPrediction(payload, currentRoute.use());
  return (
    <ol class="task-overview" aria-label="Examples">
      {payload.predictions.map((prediction, number) => (
        <li key={number}>
          <button
            type="button"
            aria-pressed={prediction === selected}
            onClick={() => setParameters({ example: String(number), about: "", answer: "" })}
          >
            <span dir="auto">{prediction.texts[0]}</span>
            <strong dir="auto">{summary(prediction)}</strong>
          </button>
        </li>
      ))}
    </ol>
  );
}

const WIDTH = 900;
const LABELS = 220; // pixels for the names of bars

function drawing(payload: TasksPayload, route: Route): Drawing {
  const prediction = selectedPrediction(payload, route);
  if (!prediction) return stack([textPart(payload.notes[0] ?? "Nothing is shown.")], WIDTH);
  const { muted } = colors.get();
  const lines = prediction.texts.flatMap((text) => wrap(text.replaceAll(/\s+/g, " "), 110));
  const evidence = selectedEvidence(prediction, route);
  return stack(
    [
      textPart(summary(prediction), { size: 20, bold: true }, 32),
      ...lines.map((line) => textPart(line, { mono: true, color: muted }, 20)),
      ...namedProbabilities(prediction).map(barPart),
      ...(evidence ? evidenceStrips(evidence, route.parameters) : []).flatMap((strip) => [
        textPart(`${strip.name}, ${evidence!.about}`, { bold: true }, 28),
        tokenStripPart(evidence!.tokens, strip.colors, WIDTH),
      ]),
    ],
    WIDTH,
  );
}

function barPart([name, probability]: readonly [string, number]): Part {
  return [
    24,
    (painter, y) => {
      painter.text(truncate(name, 30), MARGIN, y + 10);
      painter.rect(
        MARGIN + LABELS,
        y + 3,
        (WIDTH - 2 * MARGIN - LABELS - 70) * probability,
        14,
        colors.get().accent,
        0.8,
      );
      painter.text(percent(probability), WIDTH - MARGIN, y + 10, { align: "right" });
    },
  ];
}

function table(payload: TasksPayload, route: Route): Table {
  const rows: (string | number)[][] = [];
  payload.predictions.forEach((prediction, number) => {
    const { value, score, logit } = prediction.prediction;
    for (const [name, given] of Object.entries({ value, score, logit }))
      if (given !== undefined) rows.push([number, "prediction", name, given]);
    for (const [name, probability] of namedProbabilities(prediction))
      rows.push([number, "prediction", name, probability]);
  });
  const prediction = selectedPrediction(payload, route);
  const evidence = prediction && selectedEvidence(prediction, route);
  if (prediction && evidence) {
    const number = payload.predictions.indexOf(prediction);
    for (const strip of evidenceStrips(evidence, route.parameters))
      strip.values.forEach((value, i) =>
        rows.push([number, `${strip.name} of ${evidence.about}`, evidence.tokens[i] ?? "", value]),
      );
  }
  return { headers: ["example", "what", "name", "number"], rows };
}

export const tasks: View<TasksPayload> = {
  name: "tasks",
  title: "Tasks",
  about: "Use a fine-tuned model: classes with probabilities, entities, answers; and see the evidence for them.",
  group: "tasks",
  prefers: ["classify"],
  examples: [
    { label: "An offer", values: { text: OFFER } },
    { label: "A message to a friend", values: { text: CHAT } },
    { label: "Somewhere in between", values: { text: BANK_NOTICE } },
    { label: "A compliment", values: { text: "Thank you so much, this is the best help I ever got in New York." } },
    { label: "A handwritten digit", values: { image: "digit-4-or-9" }, model: "regard-digits", needs: "image" },
  ],
  travels: { text: "text", second: "text_b", layer: true },
  Thumbnail: thumbnails.tasks,
  finding: (payload, route) => {
    const prediction = selectedPrediction(payload, route);
    return prediction ? `${payload.model.name} answers: ${summary(prediction)}` : "";
  },
  verb: "predict",
  needs: {
    capability: "fine-tuned",
    without: "was pretrained and not tuned for a task: it has no classes, tags or answers to give.",
    models: "Fine-tuned models",
    advice:
      "None of the studio's models is fine-tuned for a task. Train one below, or start the studio with one: " +
      "regard studio --model DIR.",
  },
  fields: [
    { name: "text", label: "Text, or a question", lines: 2, start: OFFER },
    { name: "text_b", label: "Second text, the text that holds the answer, or endings", start: "", optional: true },
    { name: "image", label: "Image (PNG or JPEG, at most 8 MB)", start: "digit-7", image: true },
  ],
  toRequest: ({ model, text, text_b, image }, takesImages) => ({
    model,
    source: takesImages ? image : text_b ? [[text, text_b]] : [text],
    evidence: true,
  }),
  Show,
  Below: ({ payload }) => <Train open={!payload} />,
  drawing,
  table,
};
