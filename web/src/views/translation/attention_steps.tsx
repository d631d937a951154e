// The five sub-steps of encoder-decoder attention with their numbers: encoder states, scores, softmax, weighted states,
// and the context vector. Also the slider over time steps, and the most probable tokens of one.
import type { ComponentChildren } from "preact";
import { useWidth } from "../../canvas";
import { DataTable, Token } from "../../components";
import { decimal, fixedPercent, largestMagnitude, visible } from "../../format";
import { STRIP_HEIGHT, VectorStrip } from "../../heat_map";
import { setParameters } from "../../route";
import { describeHeads, describeTimeStep, type Selection, type StepAttention, SUBSTEPS, timeStep } from "./payload";

interface Props {
  readonly selection: Selection;
  readonly attention: StepAttention;
}

export function AttentionSteps({ selection, attention }: Props) {
  const { substeps, model } = selection;
  return (
    <section class="substeps" aria-label="Encoder-decoder attention">
      <h2>Encoder-decoder attention: {lowerFirst(describeTimeStep(selection))}</h2>
      <p class="muted">
        {model.name}: {describeHeads(selection)}
      </p>
      <fieldset class="parts">
        <legend class="muted">Sub-steps up to</legend>
        <span class="group">
          {SUBSTEPS.map((name, number) => (
            <button
              key={name}
              type="button"
              aria-pressed={number + 1 === substeps}
              onClick={() => setParameters({ sub: number + 1 === SUBSTEPS.length ? "" : String(number + 1) })}
            >
              {number + 1}. {name}
            </button>
          ))}
        </span>
      </fieldset>
      <ol class="explanations">
        {explanations(selection)
          .slice(0, substeps)
          .map((line) => (
            <li key={line}>{line}</li>
          ))}
      </ol>
      <Numbers selection={selection} attention={attention} />
    </section>
  );
}

function Numbers({ selection, attention }: Props) {
  const { substeps, dimension, payload, mean, heads } = selection;
  const { recurrent } = selection.model;
  const { states, scores, weights, values, weighted, context, query } = attention;
  const [stateColumn, stateWidth] = useWidth<HTMLTableCellElement>();
  const [weightedColumn, weightedWidth] = useWidth<HTMLTableCellElement>();
  const [largestState, largestValue] = [largestMagnitude(...states), largestMagnitude(...values)];
  const stripWidth = Math.max(24, stateWidth - 10);
  const strongest = weights.reduce((best, weight, at) => (weight > weights[best]! ? at : best), 0);
  const name = recurrent ? "h" : "v";
  const selectable = { marked: dimension, onSelect: (next: number) => setParameters({ d: String(next) }) };
  const valueStrip = (vector: Float32Array) => (
    <VectorStrip vector={vector} largest={largestValue} width={Math.max(24, weightedWidth - 10)} {...selectable} />
  );
  const number = (content: ComponentChildren, name: string) => ({ content, class: `number ${name}` });
  const headers = [
    "source",
    { content: `1. state${recurrent ? " h" : ""}`, class: "vector", ref: stateColumn },
    ...(substeps > 1 ? ["2. score"] : []),
    ...(substeps > 2 ? [{ content: "3. softmax", class: "soft" }] : []),
    ...(substeps > 3
      ? [
          { content: `4. × ${name}`, class: "vector", ref: weightedColumn },
          `${name}[${dimension}]`,
          `× ${name}[${dimension}]`,
        ]
      : []),
  ];
  const weightBar = (weight: number) => (
    <>
      <span class="bar" style={{ width: `${100 * weight}%` }} />
      {decimal(weight)}
    </>
  );
  const cells = (token: string, at: number) => [
    <Token text={visible(token)} />,
    {
      content: (
        <VectorStrip vector={states[at]!} largest={largestState} width={stripWidth} {...(recurrent && selectable)} />
      ),
      class: "vector",
    },
    ...(substeps > 1 ? [number(scores ? decimal(scores[at]!) : "–", "score")] : []),
    ...(substeps > 2 ? [number(weightBar(weights[at]!), "weight")] : []),
    ...(substeps > 3
      ? [
          { content: valueStrip(weighted[at]!), class: "vector" },
          number(decimal(values[at]![dimension]!), "value"),
          number(decimal(weighted[at]![dimension]!, 4), "product"),
        ]
      : []),
  ];
  const sum = [
    { content: "5. sum: the context vector", colSpan: 3 },
    number(decimal(weights.reduce((a, b) => a + b, 0)), ""),
    { content: valueStrip(context), class: "vector", style: { height: `${STRIP_HEIGHT + 8}px` } },
    "",
    number(decimal(context[dimension]!, 4), "context"),
  ];
  return (
    <>
      {query && substeps > 1 && (
        <p class="query">
          <span>{queryName(selection)}:</span>{" "}
          <VectorStrip
            vector={query}
            largest={largestMagnitude(query)}
            width={Math.min(420, Math.max(120, stripWidth))}
          />
        </p>
      )}
      <DataTable
        class={`attention-steps upto${substeps}`}
        label="States, scores, weights and their products"
        headers={headers}
        rows={payload.source.tokens.map(cells)}
        rowProps={(at) => ({ class: substeps > 2 && at === strongest ? "strong" : "" })}
        {...(substeps > 4 && { footer: sum })}
      />
      {substeps > 3 && (
        <label class="which">
          <span class="muted">
            Dimension of the {context.length} whose numbers are written out
            {mean &&
              ` (this one belongs to head ${heads[Math.floor((dimension * heads.length) / context.length)]} and ` +
                "is multiplied by the weight of that head)"}
            : press a strip, or
          </span>
          <input
            type="number"
            name="d"
            min={0}
            max={context.length - 1}
            value={dimension}
            onInput={(event) => setParameters({ d: event.currentTarget.value })}
          />
        </label>
      )}
    </>
  );
}

const SCORES: Record<string, string> = {
  "scaled dot": "q · k / √d",
  dot: "s · h",
  general: "s · W h",
  additive: "v · tanh(W s + U h)",
};

const RECIPES: Readonly<Record<string, string>> = {
  luong: "State and context are concatenated and go through a trained layer that predicts the word (Luong’s recipe).",
  deck:
    "The context joins the vector of the last word as the input of the cell, whose new state predicts the word (the " +
    "recipe of the lecture).",
};

/** What scores the encoder states. */
export function queryName({ model }: Selection): string {
  if (!model.recurrent) return "The query q, computed from the decoder’s vector at this step";
  const state =
    model.recipe === "deck" ? "The decoder’s state s of the previous step" : "The decoder’s state s at this step";
  return model.score === "additive" ? `${state}, as W s` : state;
}

/** One explanation per sub-step. */
export function explanations({ model, payload, mean, attention }: Selection): readonly string[] {
  const count = payload.source.tokens.length;
  const states =
    `The encoder computes a state for each of the ${count} tokens of the source, including its end: vectors of ` +
    `${attention?.states[0]?.length ?? 0} numbers.`;
  const width = attention?.context.length ?? 0;
  if (model.recurrent)
    return [
      `${states} The decoder attends to all of them.`,
      `Each state h gets a score: ${SCORES[model.score]}.`,
      "The softmax turns the scores into weights that sum to 1.",
      "Each state is multiplied by its weight: a large one amplifies it, a small one drowns it out.",
      `The sum is the context vector. ${RECIPES[model.recipe ?? "luong"]}`,
    ];
  return [
    `${states} A head computes a key k and a value v from each.`,
    mean
      ? "Each head has its own scores: select one to see them."
      : `Each key gets a score: ${SCORES[model.score]}, here the product times ${payload.encoder?.scale.toFixed(4)}.`,
    mean
      ? "The softmax turns the scores of each head into weights; shown is their mean, which alignments use."
      : "The softmax turns the scores into weights that sum to 1.",
    mean
      ? "Each value is multiplied by the weight of its own head; the heads are next to each other."
      : "Each value is multiplied by its weight: a large one amplifies it, a small one drowns it out.",
    "The sum is the context " +
      `vector${mean ? `, ${width} numbers of these heads` : ` of this head, ${width} numbers`}. The contexts of all ` +
      "heads are concatenated, multiplied by a matrix and added to the decoder’s vector.",
  ];
}

export function goToStep(step: number, { hypothesis }: Selection): void {
  setParameters({ step: String(Math.max(0, Math.min(hypothesis.steps.length - 1, step))) });
}

const lowerFirst = (text: string) => text.charAt(0).toLowerCase() + text.slice(1);

export function TimeSlider({ selection }: { selection: Selection }) {
  const { payload, hypothesis, step } = selection;
  return (
    <div class="time">
      <label class="slider">
        <span>{describeTimeStep(selection)}</span>
        <input
          type="range"
          name="step"
          min={1}
          max={hypothesis.steps.length}
          value={step + 1}
          aria-valuetext={`${lowerFirst(describeTimeStep(selection))}: ${visible(hypothesis.steps[step]!.token)}`}
          onInput={(event) => goToStep(Number(event.currentTarget.value) - 1, selection)}
        />
      </label>
      <ol class="steps" aria-label="Tokens of the translation, step by step">
        {payload.source.words.slice(0, payload.time_steps_read).map((word, number) => (
          <li key={`read ${number}`} class="read" title={`Time step ${number + 1}: the encoder reads`}>
            <sub>{number + 1}</sub>
            <bdi>{word}</bdi>
          </li>
        ))}
        {payload.time_steps_read > 0 && (
          <li class="read" aria-hidden="true">
            →
          </li>
        )}
        {hypothesis.steps.map((one, number) => (
          <li key={number}>
            <button
              type="button"
              class={number < step ? "past" : number > step ? "future" : ""}
              aria-pressed={number === step}
              title={`${describeTimeStep(selection, number)}: ${fixedPercent(one.probability, 1)}`}
              onClick={() => goToStep(number, selection)}
            >
              {payload.time_steps_read > 0 && timeStep(selection, number).number && (
                <sub>{timeStep(selection, number).number}</sub>
              )}
              <bdi>{visible(one.token)}</bdi>
            </button>
          </li>
        ))}
      </ol>
      {payload.time_steps_read > 0 && (
        <p class="muted">
          The encoder reads a word per time step, steps 1 to {payload.time_steps_read}; the decoder then writes a word
          per step. As in the lectures, the pieces of a word count as one, and end tokens are not counted.
        </p>
      )}
    </div>
  );
}

export function Candidates({ selection }: { selection: Selection }) {
  const { hypothesis, step } = selection;
  const { token, probability, likeliest } = hypothesis.steps[step]!;
  const isSelected = (one: { token: string; probability: number }) =>
    one.token === token && one.probability === probability;
  // the beam, or who gave the translation, may select another token
  const rows = likeliest.some(isSelected) ? likeliest : [{ token, probability }, ...likeliest];
  return (
    <div class="candidates">
      <h2>
        {describeTimeStep(selection)}: <Token text={visible(token)} /> {fixedPercent(probability, 1)}
      </h2>
      <DataTable
        class="candidates-table"
        rows={rows.map((one) => [
          <bdi>{visible(one.token)}</bdi>,
          { content: <span class="bar" style={{ width: `${100 * one.probability}%` }} />, class: "share" },
          { content: fixedPercent(one.probability, 2), class: "number" },
        ])}
        rowProps={(row) => ({ class: isSelected(rows[row]!) ? "taken" : "" })}
      />
    </div>
  );
}
