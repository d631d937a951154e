// Translation: a time slider over the steps of a decoding; at each the four sub-steps of encoder-decoder attention with
// their numbers, the word that is said, and the alignment matrix of all steps.
import { useMemo } from "preact/hooks";
import { setParameters, formatRoute, currentRoute } from "../route";
import type { View } from "../view";
import { Matrix } from "./translation/matrix";
import { choiceOf, type Choice, type Translation } from "./translation/payload";
import { drawing, table } from "./translation/export";
import { Substeps } from "./translation/substeps";
import { arrows, Likely, Time } from "./translation/time";
import "./translation/translation.css";

/** The lectures' sentences, and how the names of translators end that know their language. */
const EXAMPLES = [
  { text: "Ich muss auf den Markt gehen.", languages: "de-en" },
  { text: "Je suis étudiant.", languages: "fr-en" },
];

const BEAM = "5";

function Show({ payload }: { payload: Translation }) {
  const here = currentRoute.use();
  const choice = useMemo(() => choiceOf(payload, here), [payload, here]);
  return (
    <section class="translation" aria-label="Translation" onKeyDown={(event) => choice && arrows(event, choice)}>
      {payload.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
      {payload.studio && <Elsewhere payload={payload} />}
      {choice && (
        <>
          <Hypotheses choice={choice} />
          <Time choice={choice} />
          <div class="now">
            <div>{choice.look ? <Substeps choice={choice} look={choice.look} /> : <None />}</div>
            <div>
              <Likely choice={choice} />
              {choice.look && <Matrix choice={choice} />}
            </div>
          </div>
        </>
      )}
    </section>
  );
}

/** The translators there are where this model is none, and the lectures' sentences. */
function Elsewhere({ payload }: { payload: Translation }) {
  const { parameters } = currentRoute.get();
  const names = payload.studio?.translators ?? [];
  if (!payload.model) {
    if (!names.length) return <p>None of the studio’s models that are loaded translates. Start it with one: regard studio --model DIR, where `regard train translate` wrote DIR.</p>;
    return (
      <p>
        These translate:{" "}
        {names.map((name, number) => (
          <span key={name}>
            {number > 0 && ", "}
            <a href={formatRoute({ view: "translation", parameters: { ...parameters, model: name } })}>{name}</a>
          </span>
        ))}
      </p>
    );
  }
  const examples = EXAMPLES.flatMap(({ text, languages }) => {
    const model = names.find((name) => name.endsWith(languages));
    return model ? [{ text, model }] : [];
  });
  const beam = parameters["beam"] ?? BEAM;
  return (
    <p class="muted">
      {examples.length > 0 && "Examples: "}
      {examples.map(({ text, model }, number) => (
        <span key={text}>
          {number > 0 && " · "}
          <a href={formatRoute({ view: "translation", parameters: { model, text, beam } })}>{text}</a>
        </span>
      ))}
    </p>
  );
}

function Hypotheses({ choice }: { choice: Choice }) {
  const { payload, model, number, told, layer, heads, mean } = choice;
  const usual = payload.alignment_heads;
  return (
    <>
      <p class="both">
        <span dir="auto">{payload.text}</span> <span aria-hidden="true">→</span> <strong dir="auto">{told.text || "(nothing)"}</strong>
      </p>
      <div class="choices">
        <label>
          <span class="muted">Translation</span>
          <select name="translation" value={number} onChange={(event) => setParameters({ translation: event.currentTarget.value })}>
            {payload.hypotheses.map((one, at) => (
              <option key={at} value={at}>
                {at + 1}. {one.text || "(nothing)"}
              </option>
            ))}
          </select>
        </label>
        <span class="muted">
          {number + 1} of {payload.hypotheses.length} by the beam; score {told.score.toFixed(3)}, log-probability {told.log_probability.toFixed(3)}
          {!told.finished && ", cut off"}
        </span>
      </div>
      {model.layers > 0 && model.kind === "transformer" && (
        <div class="choices">
          <label>
            <span class="muted">Decoder layer</span>
            <select name="layer" value={layer} onChange={(event) => setParameters({ layer: event.currentTarget.value })}>
              {Array.from({ length: model.layers }, (_, one) => (
                <option key={one} value={one}>
                  {one}
                  {one === usual?.layer && " (alignments)"}
                </option>
              ))}
            </select>
          </label>
          <fieldset>
            <legend>Head</legend>
            <span class="heads">
              {model.heads > 1 && (
                <button type="button" aria-pressed={mean} onClick={() => setParameters({ head: "" })}>
                  mean of {usual?.heads.join(", ")}
                </button>
              )}
              {Array.from({ length: model.heads }, (_, one) => (
                <button key={one} type="button" aria-label={`Head ${one}`} aria-pressed={!mean && heads[0] === one} onClick={() => setParameters({ head: String(one) })}>
                  {one}
                </button>
              ))}
            </span>
          </fieldset>
          {usual && <span class="muted">Alignments are {usual.description}.</span>}
        </div>
      )}
    </>
  );
}

function None() {
  return (
    <>
      <h2>No encoder-decoder attention</h2>
      <p>This model was trained without attention (score none): all that the decoder knows of the source is the encoder’s last state, the same at every step. So there is nothing to look at, and no alignment.</p>
    </>
  );
}

export const translation: View<Translation> = {
  name: "translation",
  title: "Translation",
  about: "Translate a sentence and go through its decoding step by step: where the decoder looks, what it makes of it, and which word it says.",
  model: true,
  suits: ["translator"],
  verb: "Translate",
  fields: [
    { name: "text", label: "Text to translate", start: EXAMPLES[0]!.text },
    { name: "beam", label: "Beam (1 to 10)", start: BEAM, optional: true },
  ],
  Show,
  drawing: (payload, here) => drawing(choiceOf(payload, here)),
  table: (payload, here) => table(choiceOf(payload, here)),
};
