// What the four sub-steps mean for each kind of model, in words. Knows no numbers but the model's own shape.
import type { Choice } from "./payload";

export const SCORES: Record<string, string> = {
  "scaled dot": "q · k / √d",
  dot: "s · h",
  general: "s · W h",
  additive: "v · tanh(W s + U h)",
};

const RECIPES = {
  luong: "State and context side by side go through a layer that was trained with the rest, and give the word (Luong’s recipe).",
  deck: "The context joins the last word’s vector as the input of the cell, whose new state gives the word (the deck’s recipe).",
};

/** Who scores the states. */
export function asker({ model }: Choice): string {
  if (model.kind === "transformer") return "The query q, made of the decoder’s vector at this step";
  const state = model.recipe === "deck" ? "The decoder’s state s of the step before" : "The decoder’s state s at this step";
  return model.score === "additive" ? `${state}, as W s` : state;
}

/** One line for each sub-step. */
export function narration(choice: Choice): readonly string[] {
  const { model, payload, mean, look } = choice;
  const count = payload.source.tokens.length;
  const states = `The encoder left a state for each of the ${count} tokens of the source, its end among them: vectors of ${look?.states[0]?.length ?? 0} numbers.`;
  const width = look?.context.length ?? 0;
  if (model.kind !== "transformer")
    return [
      `${states} The decoder looks at all of them.`,
      `Each state h gets a score: ${SCORES[model.score]}.`,
      "Softmax makes weights of the scores, which sum to 1. Each state times its weight: some are amplified, the others are drowned out.",
      `Their sum is the context vector. ${RECIPES[model.recipe ?? "luong"]}`,
    ];
  return [
    `${states} A head makes a key k and a value v of each.`,
    mean ? "Each head scores for itself: choose one to see its scores." : `Each key gets a score: ${SCORES[model.score]}, here the product times ${model.scale?.toFixed(4)}.`,
    mean
      ? "Softmax makes weights of each head’s scores; shown is their mean, which alignments use. Each value times its own head’s weight, heads side by side: some are amplified, the others are drowned out."
      : "Softmax makes weights of the scores, which sum to 1. Each value times its weight: some are amplified, the others are drowned out.",
    `Their sum is the context vector${mean ? `, ${width} numbers of all these heads` : ` of this head, ${width} numbers`}. The contexts of all heads, side by side, go through a matrix and are added to the decoder’s vector.`,
  ];
}
