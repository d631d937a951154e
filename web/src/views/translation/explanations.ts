// Explanations of the four sub-steps for each kind of model.
import type { Selection } from "./payload";

const SCORES: Record<string, string> = {
  "scaled dot": "q · k / √d",
  dot: "s · h",
  general: "s · W h",
  additive: "v · tanh(W s + U h)",
};

const RECIPES = {
  luong: "State and context are concatenated and go through a trained layer that predicts the word (Luong’s recipe).",
  deck: "The context joins the vector of the last word as the input of the cell, whose new state predicts the word (the recipe of the lecture).",
};

/** What scores the encoder states. */
export function queryName({ model }: Selection): string {
  if (model.kind === "transformer") return "The query q, computed from the decoder’s vector at this step";
  const state = model.recipe === "deck" ? "The decoder’s state s of the previous step" : "The decoder’s state s at this step";
  return model.score === "additive" ? `${state}, as W s` : state;
}

/** One explanation per sub-step. */
export function explanations({ model, payload, mean, attention }: Selection): readonly string[] {
  const count = payload.source.tokens.length;
  const states = `The encoder computes a state for each of the ${count} tokens of the source, including its end: vectors of ${attention?.states[0]?.length ?? 0} numbers.`;
  const width = attention?.context.length ?? 0;
  if (model.kind !== "transformer")
    return [
      `${states} The decoder attends to all of them.`,
      `Each state h gets a score: ${SCORES[model.score]}.`,
      "The softmax turns the scores into weights that sum to 1. Each state is multiplied by its weight.",
      `The sum is the context vector. ${RECIPES[model.recipe ?? "luong"]}`,
    ];
  return [
    `${states} A head computes a key k and a value v from each.`,
    mean ? "Each head has its own scores: select one to see them." : `Each key gets a score: ${SCORES[model.score]}, here the product times ${model.scale?.toFixed(4)}.`,
    mean
      ? "The softmax turns the scores of each head into weights; shown is their mean, which alignments use. Each value is multiplied by the weight of its own head; the heads are next to each other."
      : "The softmax turns the scores into weights that sum to 1. Each value is multiplied by its weight.",
    `The sum is the context vector${mean ? `, ${width} numbers of these heads` : ` of this head, ${width} numbers`}. The contexts of all heads are concatenated, multiplied by a matrix and added to the decoder’s vector.`,
  ];
}
