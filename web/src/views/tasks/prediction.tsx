// One prediction: probabilities as bars, entities and answers marked in the text, and the evidence for it.
import { DataTable, Select } from "../../components";
import { layerNumbers, percent, slice } from "../../format";
import { currentRoute, formatRoute, integerParameter, layerParameter, type Route, setParameters } from "../../route";
import { colors, series } from "../../theme";
import { ABOUT_GRADIENT, aboutIntegratedGradients, type TokenStrip, TokenStrips } from "../../token_strips";
import type { EntityView, Evidence, PredictedExample, TaskModelView } from "../../types";
import type { ViewOf } from "../../view";

const probabilityCell = (probability: number) => ({
  content: percent(probability),
  class: "task-number",
  title: String(probability),
});

export function ShowPrediction({ prediction, model }: { prediction: PredictedExample; model: TaskModelView }) {
  const { image, texts } = prediction;
  const { entities, nbest, ending } = prediction.prediction;
  if (entities || nbest) {
    return (
      <section class="task-prediction" aria-label="Prediction">
        {entities ? <Entities prediction={prediction} /> : <Answers prediction={prediction} />}
      </section>
    );
  }
  return (
    <section class="task-prediction" aria-label="Prediction">
      {image && <img class="task-image" src={image} alt={texts[0] ?? ""} />}
      <p class="task-verdict">{summary(prediction)}</p>
      {!image &&
        (ending === undefined ? texts : texts.slice(0, 1)).map((text, number) => (
          <blockquote key={number} dir="auto">
            {text}
          </blockquote>
        ))}
      <DataTable
        class="task-bars"
        rows={labelProbabilities(prediction).map(([name, probability]) => [
          name,
          { content: <div style={{ width: `${100 * probability}%` }} />, class: "task-bar" },
          probabilityCell(probability),
        ])}
      />
      {model.several && (
        <p class="muted">
          Several labels may hold at once: each probability stands for itself, and labels with 50% or more are
          predicted.
        </p>
      )}
    </section>
  );
}

/** A text with marked spans. */
function MarkedText({
  text,
  spans,
  mark,
}: {
  text: string;
  spans: readonly Span[];
  mark(span: Span, text: string): preact.JSX.Element;
}) {
  const parts: (string | preact.JSX.Element)[] = [];
  let end = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    parts.push(slice(text, end, span.start), mark(span, slice(text, span.start, span.end)));
    end = span.end;
  }
  parts.push(slice(text, end));
  return (
    <p class="task-marked" dir="auto">
      {parts}
    </p>
  );
}

function Entities({ prediction }: { prediction: PredictedExample }) {
  colors.use();
  const entities = prediction.prediction.entities ?? [];
  const labels = [...new Set(entities.map((one) => one.label))].sort();
  const color = (label: string) => series(labels.indexOf(label));
  const labelOf = (span: Span) => entities.find((one) => one.start === span.start)?.label ?? "";
  return (
    <>
      <p class="task-verdict">{entities.length === 1 ? "1 entity" : `${entities.length} entities`}</p>
      <MarkedText
        text={prediction.texts[0] ?? ""}
        spans={entities}
        mark={(span, text) => (
          <mark
            key={span.start}
            class="task-entity"
            style={{ "--tint": color(labelOf(span)) }}
            title={`${labelOf(span)} ${span.probability}`}
          >
            {text} <small>{labelOf(span)}</small>
          </mark>
        )}
      />
      <DataTable
        class="task-bars"
        headers={["Entity", "Label", { content: "Probability", class: "task-number" }]}
        rows={entities.map((one) => [
          one.text,
          <>
            <span class="task-dot" style={{ background: color(one.label) }} aria-hidden="true" /> {one.label}
          </>,
          probabilityCell(one.probability),
        ])}
      />
    </>
  );
}

function Answers({ prediction: one }: { prediction: PredictedExample }) {
  const { parameters } = currentRoute.use();
  const { texts, prediction } = one;
  const answers = prediction.nbest ?? [];
  const predicted = Math.max(
    0,
    answers.findIndex((answer) => answer.start === prediction.start && answer.end === prediction.end),
  );
  const selected = integerParameter(parameters, "answer", answers.length, predicted);
  const span = answers[selected];
  return (
    <>
      <p class="muted" dir="auto">
        {texts[0]}
      </p>
      <p class="task-verdict" dir="auto">
        {summary(one)}
      </p>
      <MarkedText
        text={texts[1] ?? ""}
        spans={span && span.end > span.start ? [span] : []}
        mark={(marked, text) => (
          <mark key={marked.start} class="task-answer" title={String(marked.probability)}>
            {text}
          </mark>
        )}
      />
      <h3>Best answers</h3>
      <ol class="task-nbest">
        {answers.map((answer, number) => (
          <li key={number}>
            <button
              type="button"
              aria-pressed={number === selected}
              onClick={() => setParameters({ answer: String(number) })}
            >
              <span class="task-share" style={{ width: `${100 * answer.probability}%` }} aria-hidden="true" />
              <span dir="auto">{answer.answer || "no answer"}</span>
              <span class="task-number" title={String(answer.probability)}>
                {percent(answer.probability)}
              </span>
            </button>
          </li>
        ))}
      </ol>
      {prediction.margin !== undefined && prediction.margin !== null && (
        <p class="muted">The best answer scores {prediction.margin.toFixed(2)} above no answer.</p>
      )}
    </>
  );
}

/** The layer whose attention is shown; 0 stands for the rollout over all. */
function layerOf(evidence: Evidence, parameters: Readonly<Record<string, string>>): number {
  return layerParameter(parameters, evidence.attention.length, 0);
}

export function evidenceStrips(
  evidence: Evidence,
  parameters: Readonly<Record<string, string>>,
): readonly TokenStrip[] {
  const { about, integrated, gradient, attention, special } = evidence;
  const layer = layerOf(evidence, parameters);
  const token = evidence.tokens[evidence.token];
  const strip = (name: string, text: TokenStrip["about"], values: readonly number[], signed: boolean) => ({
    name,
    about: text,
    values,
    signed,
    colors: relativeToWords(values, special),
  });
  return [
    strip("Integrated gradients", aboutIntegratedGradients(about, integrated), integrated.scores, true),
    strip("Gradient × input", ABOUT_GRADIENT, gradient.scores, true),
    layer === 0
      ? strip("Attention, all layers", `what reaches ${token} from each token (rollout)`, evidence.rollout, false)
      : strip(
          `Attention, layer ${layer}`,
          `what ${token} attends to, the mean over heads`,
          attention[layer - 1] ?? [],
          false,
        ),
  ];
}

/**
 * Values relative to the largest word, from -1 to 1: special tokens receive much attention and would hide all others.
 */
function relativeToWords(values: readonly number[], special: readonly boolean[]): readonly number[] {
  const words = values.filter((_, i) => !special[i]);
  const largest = Math.max(...words.map(Math.abs), 1e-12);
  return values.map((value) => Math.max(-1, Math.min(1, value / largest)));
}

export function EvidencePanel({ prediction: one, model }: { prediction: PredictedExample; model?: string }) {
  const route = currentRoute.use();
  const evidence = selectedEvidence(one, route);
  if (!evidence) return one.why ? <p class="muted">No attention and attribution: {one.why}.</p> : null;
  const layer = layerOf(evidence, route.parameters);
  const layers = layerNumbers(evidence.attention.length).map((one) => [String(one), `layer ${one}`] as const);
  const [text = "", second = ""] = one.texts;
  const entities = one.prediction.entities?.length ?? 0;
  return (
    <section class="task-evidence" aria-labelledby="evidence">
      <h2 id="evidence">Why {evidence.about}?</h2>
      <div class="choices">
        {one.evidence.length > 1 && (
          <Select
            label="Explain"
            options={Object.fromEntries(one.evidence.map((item, number) => [number, item.about]))}
            value={one.evidence.indexOf(evidence)}
            onSelect={(about) => setParameters({ about })}
          />
        )}
        <Select
          label="Attention of"
          options={layers}
          value={layer || ""}
          empty="all layers (rollout)"
          onSelect={(value) => setParameters({ layer: value })}
        />
        {one.evidence.length < entities && (
          <span class="muted">
            the first {one.evidence.length} of {entities}
          </span>
        )}
        {model && !one.image && one.texts.length <= 2 && (
          <a href={formatRoute({ view: "attention", parameters: { model, text, ...(second && { text_b: second }) } })}>
            All heads of this text
          </a>
        )}
      </div>
      <TokenStrips strips={evidenceStrips(evidence, route.parameters)} tokens={evidence}>
        it; the colors of each strip are relative to its largest word. Attention shows what a model attends to, not why
        it decides.
      </TokenStrips>
    </section>
  );
}

/** A part of a text. */
type Span = Pick<EntityView, "start" | "end" | "probability">;

export type TasksPayload = ViewOf<"predict">;

export function selectedPrediction(payload: TasksPayload, { parameters }: Route): PredictedExample | undefined {
  return payload.predictions[integerParameter(parameters, "example", payload.predictions.length)];
}

export function selectedEvidence({ evidence }: PredictedExample, { parameters }: Route): Evidence | undefined {
  return evidence[integerParameter(parameters, "about", evidence.length)];
}

/** Labels, or endings, with their probabilities in descending order. */
export function labelProbabilities({ texts, prediction }: PredictedExample): readonly (readonly [string, number])[] {
  const { probabilities } = prediction;
  if (!probabilities) return [];
  const pairs = Array.isArray(probabilities)
    ? (probabilities as readonly number[]).map((probability, i) => [texts[i + 1] ?? "", probability] as const)
    : Object.entries(probabilities as Readonly<Record<string, number>>);
  return [...pairs].sort((a, b) => b[1] - a[1]);
}

/** What a bar chart of the prediction shows: entities, answers or labels. */
export function namedProbabilities(prediction: PredictedExample): readonly (readonly [string, number])[] {
  const { entities, nbest } = prediction.prediction;
  if (entities) return entities.map((one) => [`${one.label} ${one.text}`, one.probability] as const);
  if (nbest) return nbest.map((one) => [one.answer || "no answer", one.probability] as const);
  return labelProbabilities(prediction);
}

/** The prediction in a few words. */
export function summary(one: PredictedExample): string {
  const { value, score, logit, entities, nbest, probability, answer, ending, label } = one.prediction;
  if (value !== undefined) return value.toFixed(3);
  if (score !== undefined)
    return logit === score ? score.toFixed(3) : `${score.toFixed(3)} (logit ${logit?.toFixed(3)})`;
  if (entities) return entities.map((entity) => `${entity.label} ${entity.text}`).join(", ") || "no entity";
  if (nbest) return `${percent(probability ?? 0)} ${answer || "no answer"}`;
  const probabilities = labelProbabilities(one);
  if (ending !== undefined) return `${percent(probabilities[0]?.[1] ?? 0)} ${ending}`;
  const byName = new Map(probabilities);
  const names = typeof label === "string" ? [label] : (label ?? []);
  return names.map((name) => `${percent(byName.get(name) ?? 0)} ${name}`).join(", ") || "no label";
}
