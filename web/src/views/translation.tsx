// Translation: a slider over the time steps of decoding; for each step, encoder-decoder attention with its numbers, the most
// probable tokens, and the alignment of all steps.
import { useMemo } from "preact/hooks";
import { inStudio, modelsThatCan } from "../api";
import { Notes, Select } from "../components";
import { currentRoute, formatRoute, onArrowKeys, setParameters } from "../route";
import type { View } from "../view";
import { Alignment } from "./translation/alignment";
import { AttentionSteps, Candidates, goToStep, TimeSlider } from "./translation/attention_steps";
import { drawing, table } from "./translation/export";
import { type Selection, selectionOf, type Translation } from "./translation/payload";
import "./translation/translation.css";

/** The sentences of the lectures; `languages` is the suffix of the names of models that can translate them. */
const EXAMPLES = [
  { text: "Ich muss auf den Markt gehen.", languages: "de-en" },
  { text: "Je suis étudiant.", languages: "fr-en" },
];

const BEAMS = "5";

function Show({ payload }: { payload: Translation }) {
  const route = currentRoute.use();
  const selection = useMemo(() => selectionOf(payload, route), [payload, route]);
  const onKeyDown = onArrowKeys({ ArrowLeft: -1, ArrowRight: 1 }, (change) => selection && goToStep(selection.step + change, selection));
  return (
    <section class="translation" aria-label="Translation" onKeyDown={onKeyDown}>
      <Notes notes={payload.notes} />
      {inStudio() && <Examples />}
      {selection && (
        <>
          <Hypotheses selection={selection} />
          <TimeSlider selection={selection} />
          <div class="current">
            <div>{selection.attention ? <AttentionSteps selection={selection} attention={selection.attention} /> : <NoAttention />}</div>
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

/** Links to the sentences that one of the studio's models can translate. */
function Examples() {
  const { parameters } = currentRoute.get();
  const names = modelsThatCan("translation");
  const examples = EXAMPLES.flatMap(({ text, languages }) => {
    const model = names.find((name) => name.endsWith(languages));
    return model ? [{ source: text, model, num_beams: parameters["num_beams"] ?? BEAMS }] : [];
  });
  return (
    <p class="muted">
      {examples.length > 0 && "Examples: "}
      {examples.map((example, number) => (
        <span key={example.source}>
          {number > 0 && " · "}
          <a href={formatRoute({ view: "translation", parameters: example })}>{example.source}</a>
        </span>
      ))}
    </p>
  );
}

function Hypotheses({ selection }: { selection: Selection }) {
  const { payload, model, number, hypothesis, layer, heads, mean } = selection;
  const aligned = payload.alignment_heads;
  const hypotheses = payload.hypotheses.map((one, at) => [String(at), `${at + 1}. ${one.text || "(nothing)"}`] as const);
  const layers = Array.from({ length: model.layers }, (_, one) => [String(one), `${one}${one === aligned?.layer ? " (alignments)" : ""}`] as const);
  return (
    <>
      <p class="both">
        <span dir="auto">{payload.text}</span> <span aria-hidden="true">→</span> <strong dir="auto">{hypothesis.text || "(nothing)"}</strong>
      </p>
      <div class="choices">
        <Select name="translation" label="Translation" options={hypotheses} value={number} onSelect={(translation) => setParameters({ translation })} />
        <span class="muted">
          {number + 1} of {payload.hypotheses.length} of the beam; score {hypothesis.score.toFixed(3)}, log-probability {hypothesis.log_probability.toFixed(3)}
          {!hypothesis.finished && ", cut off"}
        </span>
      </div>
      {model.layers > 0 && model.kind === "transformer" && (
        <div class="choices">
          <Select name="layer" label="Decoder layer" options={layers} value={layer} onSelect={(value) => setParameters({ layer: value })} />
          <fieldset>
            <legend>Head</legend>
            <span class="heads">
              {model.heads > 1 && (
                <button type="button" aria-pressed={mean} onClick={() => setParameters({ head: "" })}>
                  mean of {aligned?.heads.join(", ")}
                </button>
              )}
              {Array.from({ length: model.heads }, (_, one) => (
                <button key={one} type="button" aria-label={`Head ${one}`} aria-pressed={!mean && heads[0] === one} onClick={() => setParameters({ head: String(one) })}>
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
      <p>This model was trained without attention (score none): the decoder only gets the encoder’s last state, the same at every step. So there are no weights and no alignment.</p>
    </>
  );
}

export const translation: View<Translation> = {
  name: "translation",
  title: "Translation",
  about: "Translate a sentence and follow its decoding step by step: what the decoder attends to, how the context vector is computed, and which word follows.",
  verb: "translate",
  needs: {
    capability: "translation",
    without: "does not translate: it was not trained on pairs of sentences.",
    models: "Models that translate",
    advice: "None of the studio's models translates. Start the studio with one: regard studio --model DIR, where `regard train translate` wrote DIR.",
  },
  submitLabel: "Translate",
  fields: [
    { name: "source", label: "Text to translate", start: EXAMPLES[0]!.text },
    { name: "num_beams", label: "Beams (1 to 10)", start: BEAMS, optional: true },
  ],
  toRequest: ({ model, source = "", num_beams }) => ({ model, source: [source], num_beams: num_beams || BEAMS, num_return_sequences: num_beams || BEAMS, steps: true }),
  Show,
  drawing: (payload, route) => drawing(selectionOf(payload, route)),
  table: (payload, route) => table(selectionOf(payload, route)),
};
