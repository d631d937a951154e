// Translation: a slider over the time steps of decoding; for each step, encoder-decoder attention with its numbers, the
// most probable tokens, and the alignment of all steps.
import { useMemo } from "preact/hooks";
import { Notes, Select } from "../components";
import { decimal, fixedPercent, largestMagnitude, layerNumbers, round, truncate, visible } from "../format";
import { drawVector } from "../heat_map";
import type { Painter } from "../painter";
import { currentRoute, onArrowKeys, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { Drawing, Table, View } from "../view";
import { Alignment, alignmentLayout, alignmentOf, drawAlignment } from "./translation/alignment";
import { AttentionSteps, Candidates, goToStep, TimeSlider } from "./translation/attention_steps";
import {
  describeHeads,
  describeTimeStep,
  headVector,
  meanWeights,
  type Selection,
  type StepAttention,
  selectionOf,
  type Translation,
} from "./translation/payload";
import "./translation/translation.css";

const MARKET = "Ich muss auf den Markt gehen.";
const BEAMS = "5";

function Show({ payload }: { payload: Translation }) {
  const route = currentRoute.use();
  const selection = useMemo(() => selectionOf(payload, route), [payload, route]);
  const onKeyDown = onArrowKeys(
    { ArrowLeft: -1, ArrowRight: 1 },
    (change) => selection && goToStep(selection.step + change, selection),
  );
  return (
    <section class="translation" aria-label="Translation" onKeyDown={onKeyDown}>
      <Notes notes={payload.notes} />
      {selection && (
        <>
          <Hypotheses selection={selection} />
          <TimeSlider selection={selection} />
          <div class="current">
            <div>
              {selection.attention ? (
                <AttentionSteps selection={selection} attention={selection.attention} />
              ) : (
                <NoAttention />
              )}
            </div>
            <div>
              <Candidates selection={selection} />
              {selection.attention && <Alignment selection={selection} />}
            </div>
          </div>
        </>
      )}
    </section>
  );
}

function Hypotheses({ selection }: { selection: Selection }) {
  const { payload, model, number, hypothesis, layer, heads, mean } = selection;
  const aligned = payload.alignment_heads;
  const hypotheses = payload.hypotheses.map(
    (one, at) => [String(at), `${at + 1}. ${one.text || "(nothing)"}`] as const,
  );
  const layers = layerNumbers(model.layers).map(
    (one) => [String(one), `${one}${one === aligned?.layer ? " (alignments)" : ""}`] as const,
  );
  return (
    <>
      <p class="both">
        <span dir="auto">{payload.text}</span> <span aria-hidden="true">→</span>{" "}
        <strong dir="auto">{hypothesis.text || "(nothing)"}</strong>
      </p>
      <div class="choices">
        <Select
          name="translation"
          label="Translation"
          options={hypotheses}
          value={number}
          onSelect={(translation) => setParameters({ translation })}
        />
        <span class="muted">
          {payload.forced
            ? "given, not searched; mean"
            : `${number + 1} of ${payload.hypotheses.length} of the beam; score ${hypothesis.score.toFixed(3)},`}{" "}
          log-probability{" "}
          {payload.forced
            ? `${hypothesis.score.toFixed(3)} per token, ${hypothesis.log_probability.toFixed(3)} in all`
            : hypothesis.log_probability.toFixed(3)}
          {!hypothesis.finished && ", cut off"}
        </span>
      </div>
      {model.layers > 0 && !model.recurrent && (
        <div class="choices">
          <Select
            name="layer"
            label="Decoder layer"
            options={layers}
            value={layer}
            onSelect={(value) => setParameters({ layer: value })}
          />
          <fieldset>
            <legend>Head</legend>
            <span class="heads">
              {model.heads > 1 && (
                <button type="button" aria-pressed={mean} onClick={() => setParameters({ head: "mean" })}>
                  mean of {aligned?.heads.join(", ")}
                </button>
              )}
              {Array.from({ length: model.heads }, (_, one) => (
                <button
                  key={one}
                  type="button"
                  aria-label={`Head ${one}`}
                  aria-pressed={!mean && heads[0] === one}
                  onClick={() => setParameters({ head: String(one) })}
                >
                  {one}
                </button>
              ))}
            </span>
          </fieldset>
          {aligned && <span class="muted">Alignments are {aligned.description}.</span>}
        </div>
      )}
    </>
  );
}

function NoAttention() {
  return (
    <>
      <h2>No encoder-decoder attention</h2>
      <p>
        This model was trained without attention (score none): the decoder only gets the encoder’s last state, the same
        at every step. So there are no weights and no alignment.
      </p>
    </>
  );
}

export const translation: View<Translation> = {
  name: "translation",
  title: "Translation",
  about:
    "Translate a sentence and follow its decoding step by step: what the decoder attends to, how the context " +
    "vector is computed, and which word follows. Or give the translation, and see its probability and alignment.",
  group: "predict",
  // The sentences of the lectures; one head, so that every sub-step has a number.
  examples: [
    {
      label: "To the market",
      values: { source: MARKET, num_beams: BEAMS },
      select: { head: "0" },
      model: "regard-de-en",
    },
    {
      label: "Je suis étudiant: 7 time steps",
      values: { source: "Je suis étudiant", target: "I am a student" },
      model: "regard-lstm-fr-en",
    },
    {
      label: "The European Economic Area",
      values: {
        source: "L'accord sur la zone économique européenne a été signé en août 1992.",
        target: "The agreement on the European Economic Area was signed in August 1992.",
      },
      select: { layer: "3", head: "3" },
      model: "regard-fr-en",
    },
    {
      label: "Hit with a pie",
      values: { source: "Il m'a entarté.", target: "He hit me with a pie." },
      select: { alignment: "hard" },
      model: "regard-lstm-fr-en",
    },
    {
      label: "The verb at the end",
      values: { source: "Ich habe gestern ein gutes Buch gelesen.", num_beams: BEAMS },
      select: { head: "0" },
      model: "regard-de-en",
    },
  ],
  travels: { text: "source", second: "target", layer: true },
  Thumbnail: thumbnails.translation,
  finding: (payload, route) => {
    const selection = selectionOf(payload, route);
    if (!selection) return "";
    const { attention, hypothesis, step } = selection;
    const most = attention ? attention.weights.indexOf(Math.max(...attention.weights)) : -1;
    const looks = attention
      ? `; for “${hypothesis.steps[step]!.token.trim()}” it attends most to ` +
        `“${payload.source.tokens[most]!.trim()}” (${fixedPercent(attention.weights[most]!, 0)})`
      : "";
    return `${payload.model.name} ${payload.forced ? "reads" : "translates"}: “${hypothesis.text}”${looks}`;
  },
  verb: "translate",
  needs: {
    capability: "translation",
    without: "does not translate: it was not trained on pairs of sentences.",
    models: "Models that translate",
    advice:
      "None of the studio's models translates. Start the studio with one: regard studio --model DIR, where " +
      "`regard train translate` wrote DIR.",
  },
  submitLabel: "Translate",
  fields: [
    { name: "source", label: "Text to translate", start: MARKET },
    { name: "target", label: "Given translation (optional)", start: "", optional: true },
    { name: "num_beams", label: "Beams (1 to 10)", start: BEAMS, optional: true, fold: true },
  ],
  toRequest: ({ model, source = "", target = "", num_beams }) => {
    const request = { model, source: [source], steps: true };
    return target.trim()
      ? { ...request, target: [target] }
      : { ...request, num_beams: num_beams || BEAMS, num_return_sequences: num_beams || BEAMS };
  },
  Show,
  drawing: (payload, route) => drawing(selectionOf(payload, route)),
  table: (payload, route) => table(selectionOf(payload, route)),
};

const WIDTH = 860;
const MARGIN = 20;
const LINE = 26;
const TOP = 96;
const MAX_TITLE = 84; // characters

export function drawing(selection: Selection | null): Drawing {
  if (!selection) return { width: 420, height: 60, draw: (painter) => painter.text("No translation.", MARGIN, 30) };
  const { payload, hypothesis, attention, step, hard, level, model } = selection;
  const data = attention && alignmentOf(selection);
  const layout =
    data?.rows.length && data.columns.length ? alignmentLayout(data, Math.min(WIDTH - 2 * MARGIN, 560)) : null;
  const bottom = TOP + (attention ? (payload.source.tokens.length + 3) * LINE : 0);
  return {
    width: WIDTH,
    height: bottom + (layout ? layout.height + 40 : 0) + MARGIN,
    draw(painter) {
      const { token, probability } = hypothesis.steps[step]!;
      painter.text(truncate(`${payload.text}  →  ${hypothesis.text}`.replace(/\s/g, " "), MAX_TITLE), MARGIN, 24, {
        size: 16,
        bold: true,
      });
      painter.text(`${describeTimeStep(selection)}: ${visible(token)} ${fixedPercent(probability, 1)}`, MARGIN, 50);
      const about = attention
        ? `Encoder-decoder attention: ${describeHeads(selection)}`
        : "No encoder-decoder attention";
      painter.text(`${model.name}. ${about}`, MARGIN, 72, { size: 12, color: colors.get().muted });
      if (attention) drawSteps(painter, selection, attention);
      if (layout && data) {
        painter.text(
          `${hard ? "Hard" : "Soft"} alignment of ${level === "word" ? "words" : "subwords"}`,
          MARGIN,
          bottom + 12,
          { bold: true },
        );
        drawAlignment(painter, data, hard, layout, MARGIN, bottom + 30);
      }
    },
  };
}

function drawSteps(painter: Painter, { payload, substeps, dimension }: Selection, attention: StepAttention): void {
  const { muted, accent } = colors.get();
  const [first, score, weight, second, last] = [MARGIN + 110, MARGIN + 370, MARGIN + 460, MARGIN + 480, WIDTH - MARGIN];
  const strip = 180;
  const header = { size: 11, color: muted };
  const number = (text: string, x: number, y: number) =>
    painter.text(text, x, y, { align: "right", mono: true, size: 12 });
  painter.text("1. state", first, TOP, header);
  if (substeps > 1) painter.text("2. score", score, TOP, { ...header, align: "right" });
  if (substeps > 2) painter.text("3. softmax", weight, TOP, { ...header, align: "right" });
  if (substeps > 3) {
    painter.text("4. weight × value", second, TOP, header);
    painter.text(`dimension ${dimension}`, last, TOP, { ...header, align: "right" });
  }
  const [largestState, largestValue] = [largestMagnitude(...attention.states), largestMagnitude(...attention.values)];
  payload.source.tokens.forEach((token, at) => {
    const y = TOP + (at + 1) * LINE;
    painter.text(truncate(visible(token), 14), first - 10, y, { align: "right" });
    drawVector(painter, attention.states[at]!, largestState, first, y - 8, strip);
    if (substeps > 1) number(attention.scores ? decimal(attention.scores[at]!) : "–", score, y);
    if (substeps < 3) return;
    painter.rect(weight - 60, y - 8, 60 * attention.weights[at]!, 16, accent, 0.28);
    number(decimal(attention.weights[at]!), weight, y);
    if (substeps < 4) return;
    drawVector(painter, attention.weighted[at]!, largestValue, second, y - 8, strip, dimension);
    number(decimal(attention.weighted[at]![dimension]!, 4), last, y);
  });
  if (substeps < 5) return;
  const y = TOP + (payload.source.tokens.length + 1) * LINE;
  painter.text("5. sum: the context vector", weight, y, { align: "right", bold: true });
  drawVector(painter, attention.context, largestValue, second, y - 8, strip, dimension);
  number(decimal(attention.context[dimension]!, 4), last, y);
}

/** Every step, and in it every source token with its score and weight. */
export function table(selection: Selection | null): Table {
  if (!selection) return { headers: ["step"], rows: [] };
  const { payload, hypothesis, layer, heads, mean } = selection;
  const steps = hypothesis.steps.map((one, number) => [number + 1, one.token, round(one.probability, 6)] as const);
  if (!hypothesis.attention) return { headers: ["step", "target_token", "probability"], rows: steps };
  const weights = meanWeights(selection);
  const size = payload.source.tokens.length;
  return {
    headers: ["step", "target_token", "probability", "layer", "head", "source", "source_token", "score", "weight"],
    rows: steps.flatMap((step, number) => {
      const scores = mean ? null : headVector(payload, hypothesis, "scores", number, layer, heads[0]!);
      const head = mean ? "mean" : heads[0]!;
      return payload.source.tokens.map((token, at) => [
        ...step,
        layer,
        head,
        at,
        token,
        scores ? round(scores[at]!, 6) : "",
        round(weights[number * size + at]!, 6),
      ]);
    }),
  };
}
