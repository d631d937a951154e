// Faithfulness: does the attention map of a classified text explain its class? Six tests and a verdict.
import { can, inStudio, studioModels } from "../api";
import { ModelLinks, Notes, Select } from "../components";
import { decimal, fixedPercent, layerNumbers, percent } from "../format";
import { type Part, stack, textPart, tokenStripPart } from "../painter";
import { type PatchImage, PatchPictures, patchPicturesPart } from "../patch_pictures";
import { formatRoute, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import { ABOUT_GRADIENT, aboutIntegratedGradients, type TokenStrip, TokenStrips } from "../token_strips";
import type { FaithfulnessCheck, ModelState } from "../types";
import type { Arguments, Drawing, Table, View, ViewOf } from "../view";
import "./faithfulness/faithfulness.css";
import { BANK_NOTICE, CHAT, OFFER } from "./tasks/examples";

type FaithfulnessPayload = ViewOf<"faithfulness">;
type Verdict = NonNullable<FaithfulnessPayload["verdict"]>;

/** A text that a pretrained model can be tested with. */
const EXAMPLE_WITH_BLANK = "Thank you so much, this is the _ help I ever got in New York.";

function Show({ payload }: { payload: FaithfulnessPayload }) {
  const { model, verdict, notes } = payload;
  const [picture, strips] = [pictureOf(payload), stripsOf(payload)];
  return (
    <>
      <p class="faithfulness-answer" dir="auto">
        {summary(payload)}
      </p>
      <p class="muted">
        {model.name}:{" "}
        {{ fill: `a ${model.family} model, at the ${payload.target}`, next: `a ${model.family} model, the next token` }[
          model.task
        ] ?? `${model.task}, a fine-tuned ${model.family} model`}
      </p>
      {inStudio() && <Controls payload={payload} />}
      <Notes notes={notes} />
      <div class="faithfulness">
        {verdict && <Headline payload={payload} verdict={verdict} />}
        <section aria-labelledby="faithfulness-strips">
          <h2 id="faithfulness-strips">
            {picture ? "Which patches count: one map, two classes" : "Which words count, by three methods"}
          </h2>
          {picture && (
            <>
              <PatchPictures picture={picture} strips={strips} />
              <p>
                The attention map is computed before the classes are: shown as the reason for {payload.label}, it is
                exactly as good a reason for {payload.other}. Integrated gradients are computed for a class, and differ
                (Pearson correlation of the two {decimal(correlation(payload))}).
              </p>
            </>
          )}
          <TokenStrips strips={strips} tokens={payload} numbersOnly={picture !== null}>
            {picture
              ? "Every picture has its own scale: full color at its largest patch. [CLS] does not count. Attention " +
                "has no sign."
              : "One scale for all three: the part of a token in the sum of the magnitudes of all words, full color " +
                `at ${fixedPercent(largestPart(payload), 1)}. Special tokens do not count as words. Attention has ` +
                "no sign."}
          </TokenStrips>
        </section>
        {verdict && (
          <section aria-labelledby="faithfulness-tests">
            <h2 id="faithfulness-tests">The six tests</h2>
            <ul class="faithfulness-checks">
              {payload.checks.map((check) => (
                <ShowCheck key={check.name} check={check} />
              ))}
            </ul>
          </section>
        )}
      </div>
    </>
  );
}

function pictureOf({ image, grid }: FaithfulnessPayload): PatchImage | null {
  return image && grid ? { image, grid } : null;
}

/** Of the integrated gradients of the two classes, over the patches. */
function correlation({ integrated, integrated_other, grid }: FaithfulnessPayload): number {
  const [down, across] = grid ?? [0, 0];
  const [a, b] = [integrated.scores.slice(-down * across), integrated_other?.scores.slice(-down * across) ?? []];
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const product = (x: readonly number[], y: readonly number[]) =>
    mean(x.map((value, i) => (value - mean(x)) * (y[i]! - mean(y))));
  return product(a, b) / (Math.sqrt(product(a, a) * product(b, b)) || 1);
}

/** Without a verdict: how to get one. */
function Below({
  payload,
  args,
  model,
}: {
  payload: FaithfulnessPayload | null;
  args: Arguments;
  model: ModelState | undefined;
}) {
  const { model: name = "", text = "" } = args;
  if (payload?.verdict || !model || (!payload && can(model, "fine-tuned"))) return null;
  const classifiers = (studioModels.get() ?? [])
    .filter((one) => one.task === "classify" || one.task === "pair")
    .map((one) => one.name);
  return (
    <div class="faithfulness-notes">
      {!payload && (
        <p>{name} is pretrained and not fine-tuned for a task: it has no classes, so there is no verdict.</p>
      )}
      {!payload && can(model, "masked-lm") && (
        <p>
          See its map and attributions for a text with a blank:{" "}
          <a href={formatRoute({ view: "faithfulness", parameters: { model: name, text: EXAMPLE_WITH_BLANK } })}>
            {EXAMPLE_WITH_BLANK}
          </a>
        </p>
      )}
      <p>
        {classifiers.length ? "Fine-tuned models: " : "None of the studio's models is fine-tuned to classify texts. "}
        <ModelLinks names={classifiers} view="faithfulness" parameters={{ text }} />
        {classifiers.length ? ". " : ""}
        <a href={formatRoute({ view: "tasks", parameters: { model: name, text } })}>Train a classifier in Tasks</a> with
        a file of texts and labels, or start the studio with one: regard studio --model DIR.
      </p>
    </div>
  );
}

function Controls({
  payload: { model, requested_label, layer, head, texts, verdict, image },
}: {
  payload: FaithfulnessPayload;
}) {
  const [text = "", second = ""] = texts;
  const set = (name: string) => (value: string) =>
    setParameters({ ...(!image && { text, text_b: second }), [name]: value });
  return (
    <div class="choices">
      {verdict && (
        <Select
          label="Class"
          options={model.labels}
          value={requested_label ?? ""}
          empty="the predicted one"
          onSelect={set("label")}
        />
      )}
      <Select
        label="Map of layer"
        options={layerNumbers(model.num_layers).map(String)}
        value={layer}
        onSelect={set("layer")}
      />
      <Select label="Head" options={model.num_heads} value={head ?? ""} empty="mean of all" onSelect={set("head")} />
    </div>
  );
}

/** The magnitude of each token as a fraction of the sum over all words. */
function parts(values: readonly number[], special: readonly boolean[]): readonly number[] {
  const sum = values.reduce((total, value, i) => (special[i] ? total : total + Math.abs(value)), 0);
  return values.map((value) => (sum ? value / sum : 0));
}

/** The largest part of a word by any method: it has the full color. */
function largestPart({ weights, integrated, integrated_other, gradient, special }: FaithfulnessPayload): number {
  const words = [weights, integrated.scores, gradient.scores, integrated_other?.scores ?? []].flatMap((values) =>
    parts(values, special).filter((_, i) => !special[i]),
  );
  return Math.max(...words.map(Math.abs), 1e-9);
}

/** Attention and the attributions on one color scale; for an image those of two classes. */
function stripsOf(payload: FaithfulnessPayload): readonly TokenStrip[] {
  const { integrated, integrated_other, gradient, weights, special, tokens, token, layer, head, label, other, image } =
    payload;
  const common = image ? 0 : largestPart(payload);
  const colorsOf = (values: readonly number[]) => {
    const shares = parts(values, special);
    // every picture has its own scale
    const largest = common || Math.max(...shares.filter((_, i) => !special[i]).map(Math.abs), 1e-9);
    return shares.map((part) => part / largest);
  };
  const heads = head === null ? "mean of all heads" : `head ${head}`;
  return [
    {
      name: `Attention, layer ${layer}, ${heads}`,
      about: `what ${tokens[token]?.trim()} attends to`,
      values: weights,
      colors: colorsOf(weights),
      signed: false,
    },
    {
      name: image ? `Integrated gradients, ${label}` : "Integrated gradients",
      about: aboutIntegratedGradients(label, integrated),
      values: integrated.scores,
      colors: colorsOf(integrated.scores),
      signed: true,
    },
    ...(image && integrated_other
      ? [
          {
            name: `Integrated gradients, ${other}`,
            about: aboutIntegratedGradients(other ?? "", integrated_other),
            values: integrated_other.scores,
            colors: colorsOf(integrated_other.scores),
            signed: true,
          },
        ]
      : []),
    {
      name: "Gradient × input",
      about: ABOUT_GRADIENT,
      values: gradient.scores,
      colors: colorsOf(gradient.scores),
      signed: true,
    },
  ];
}

function summary({ label, probability, model }: FaithfulnessPayload): string {
  return model.problem_type === "regression" ? `${label}: ${decimal(probability)}` : `${percent(probability)} ${label}`;
}

const WIDTH = 900;

function drawing(payload: FaithfulnessPayload): Drawing {
  const { verdict, checks, means, tokens } = payload;
  const [picture, strips] = [pictureOf(payload), stripsOf(payload)];
  const judged = verdict ? `${verdict} (${passedCount(payload)} of ${checks.length} passed): ` : "";
  const headline = judged + summary(payload);
  const drawings: Part[] = [
    textPart(headline, { size: 18, bold: true }, 30),
    ...(means ? [textPart(means, { color: colors.get().muted }, 28)] : []),
    ...checks.map(checkPart),
    ...(picture
      ? [patchPicturesPart(picture, strips)]
      : strips.flatMap((strip) => [
          textPart(strip.name, { bold: true }, 28),
          tokenStripPart(tokens, strip.colors, WIDTH),
        ])),
  ];
  return stack(drawings, WIDTH);
}

function checkPart(check: FaithfulnessCheck): Part {
  return [
    26,
    (painter, y) => {
      const { accent, other, ink, rule } = colors.get();
      painter.text(`${check.passed ? "✓" : "✕"} ${check.name}`, 20, y + 10);
      painter.rect(240, y + 3, 330, 14, rule, 0.5);
      painter.rect(240, y + 3, 330 * barLength(check), 14, check.passed ? accent : other, 0.8);
      painter.line(350, y, 350, y + 20, ink, 1, 2);
      painter.text(`${checkValue(check.value)} of ${check.threshold.toFixed(2)} or more`, 590, y + 10);
    },
  ];
}

function table(payload: FaithfulnessPayload): Table {
  const { label, probability, verdict, checks, required_passes, tokens } = payload;
  const rows: (string | number)[][] = [];
  rows.push(["answer", label, probability, "", ""]);
  if (verdict) rows.push(["verdict", verdict, passedCount(payload), required_passes, ""]);
  for (const check of checks) {
    rows.push(["test", check.name, check.value ?? "", check.threshold, check.passed ? "passed" : "failed"]);
    for (const [name, value] of Object.entries(check.numbers)) rows.push([check.name, name, value ?? "", "", ""]);
  }
  for (const strip of stripsOf(payload))
    strip.values.forEach((value, i) => rows.push([strip.name, tokens[i] ?? "", value, "", ""]));
  return { headers: ["what", "name", "number", "threshold", "result"], rows };
}

export const faithfulness: View<FaithfulnessPayload> = {
  name: "faithfulness",
  title: "Faithfulness",
  about:
    "A model attends to the right word, or the right part of an image. Is that why it decides? Six tests of the " +
    "attention map of a classifier, with a verdict; next to it, gradient attributions.",
  group: "tasks",
  examples: [
    { label: "An offer", values: { text: OFFER }, needs: "fine-tuned" },
    { label: "A message to a friend", values: { text: CHAT }, needs: "fine-tuned" },
    { label: "Somewhere in between", values: { text: BANK_NOTICE }, needs: "fine-tuned" },
    { label: "One head of the first layer", values: { text: OFFER, layer: "1", head: "0" }, needs: "fine-tuned" },
    {
      label: "A digit: one map, two classes",
      values: { image: "digit-4-or-9" },
      model: "regard-digits",
      needs: "image",
    },
    { label: "A blank, without a verdict", values: { text: EXAMPLE_WITH_BLANK }, model: "regard-bert" },
  ],
  travels: { text: "text", second: "text_b", layer: true },
  Thumbnail: thumbnails.faithfulness,
  finding: (payload) =>
    payload.verdict
      ? `${payload.model.name} answers ${summary(payload)}, and its attention map is ${payload.verdict}: ` +
        `${passedCount(payload)} of ${payload.checks.length} tests passed`
      : `${payload.model.name} answers ${summary(payload)}; only the map of a classifier gets a verdict`,
  verb: "faithfulness",
  excludes: ["translation"],
  prefers: ["classify", "fine-tuned"],
  submitLabel: "Test",
  fields: [
    { name: "text", label: "Text to classify", lines: 2, start: OFFER },
    { name: "text_b", label: "Second text, for pairs", start: "", optional: true },
    { name: "image", label: "Image (PNG or JPEG, at most 8 MB)", start: "digit-7", image: true },
    { name: "label", label: "Class", start: "", hidden: true },
    { name: "layer", label: "Layer", start: "", hidden: true },
    { name: "head", label: "Head", start: "", hidden: true },
  ],
  toRequest: ({ model, text, text_b, image, label, layer, head }, takesImages) => ({
    model,
    label,
    layer,
    head,
    ...(takesImages ? { image } : { text, text_b }),
  }),
  Show,
  Below,
  drawing,
  table,
};

const SIGNS = { faithful: "✓", doubtful: "?", unfaithful: "✕" };
const SCALE = 3; // the end of a bar, as a multiple of the threshold

const passedCount = ({ checks }: FaithfulnessPayload) => checks.filter((check) => check.passed).length;
const checkValue = (value: number | null) => (value === null ? "none" : decimal(value));
/** Length of a bar from 0 to 1. */
const barLength = ({ value, threshold }: FaithfulnessCheck) =>
  Math.max(0, Math.min(1, (value ?? 0) / (SCALE * threshold)));

function Headline({ payload, verdict }: { payload: FaithfulnessPayload; verdict: Verdict }) {
  return (
    <section aria-labelledby="faithfulness-verdict">
      <h2 id="faithfulness-verdict" class={`faithfulness-verdict faithfulness-${verdict}`}>
        <span class="faithfulness-sign" aria-hidden="true">
          {SIGNS[verdict]}
        </span>
        {verdict}
      </h2>
      <p>
        {passedCount(payload)} of {payload.checks.length} tests passed: {payload.means}.
      </p>
      <p class="muted">
        A faithful map passes {payload.required_passes} tests, “{payload.decisive}” among them; if that one fails, the
        map is unfaithful. The thresholds were fixed before any model was measured.{" "}
        {fixedPercent(payload.special_weight, 1)} of the map’s weight is on special tokens, which no test counts as{" "}
        {payload.image ? "patches" : "words"}.
      </p>
    </section>
  );
}

function ShowCheck({ check }: { check: FaithfulnessCheck }) {
  const numbers = Object.entries(check.numbers).map(([name, value]) => `${name} ${checkValue(value)}`);
  return (
    <li data-check={check.name} class={check.passed ? "faithfulness-passed" : "faithfulness-failed"}>
      <h3>
        <span class="faithfulness-mark">{check.passed ? "✓ passed" : "✕ failed"}</span> {check.name}
      </h3>
      <div class="faithfulness-scale">
        <div class="faithfulness-track" aria-hidden="true">
          <div style={{ width: `${100 * barLength(check)}%` }} />
          <span style={{ left: `${100 / SCALE}%` }} />
        </div>
        <span class="faithfulness-number">
          <strong title={String(check.value)}>{checkValue(check.value)}</strong> of {check.threshold.toFixed(2)} or more
        </span>
      </div>
      <p class="faithfulness-means">
        {check.value === null ? "The map points at nothing, so there is nothing to test." : check.means}
      </p>
      <p class="muted faithfulness-done">
        {check.method} <span class="faithfulness-numbers">({numbers.join(", ")})</span>
      </p>
    </li>
  );
}
