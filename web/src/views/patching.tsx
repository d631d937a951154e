// Logit attribution and activation patching: results that the library writes as a story, in the studio.
import { thumbnails } from "../thumbnails";
import type { Need, View, ViewOf } from "../view";
import { Blocks, story } from "./story";

type StoryView = ViewOf<"patch">;

const needs: Need = {
  capability: "causal-lm",
  without: "does not predict the next token.",
  models: "Models that do",
  advice:
    "None of the studio's models predicts the next token. Start the studio with a GPT: regard studio --model DIR.",
};

/** The first paragraph is the finding; the figures and tables follow. */
const finding = ({ blocks: [first] }: StoryView) => (first?.kind === "text" ? first.text : "");

function Show({ payload }: { payload: StoryView }) {
  return (
    <div class="story">
      <Blocks blocks={payload.blocks.slice(1)} />
    </div>
  );
}

const shared = { group: "inside", finding, needs, Show, drawing: story.drawing, table: story.table } as const;

export const logitAttribution: View<StoryView> = {
  ...shared,
  name: "logit_attribution",
  title: "Logit attribution",
  about: "Which heads and feed-forward layers put the next token there? Their contributions sum to its logit.",
  examples: [
    { label: "The Atlantic Ocean", values: { text: "The river flows into the Atlantic" }, model: "regard-gpt" },
    {
      label: "Ocean or River",
      values: { text: "The river flows into the Atlantic", answer: "Ocean", wrong: "River" },
      model: "regard-gpt",
    },
    { label: "A room", values: { text: "She opened the door and went into the" }, model: "regard-gpt" },
    { label: "He or she", values: { text: "The queen said that", answer: "she", wrong: "he" }, model: "regard-gpt" },
  ],
  travels: { text: "text" },
  Thumbnail: thumbnails.logitAttribution,
  verb: "logit_attribution",
  fields: [
    { name: "text", label: "Prompt", start: "The river flows into the Atlantic" },
    { name: "answer", label: "Next token (default: the likeliest)", start: "", optional: true },
    { name: "wrong", label: "Minus the logit of (optional)", start: "", optional: true },
  ],
  toRequest: ({ model, text, answer, wrong }) => ({ model, text, answer: answer || null, wrong: wrong || null }),
};

export const patch: View<StoryView> = {
  ...shared,
  name: "patch",
  title: "Activation patching",
  about: "Two prompts that differ in a word: which layer, position or head carries the difference to the next token?",
  examples: [
    {
      label: "King or queen",
      values: { clean: "The queen said that", corrupted: "The king said that", answer: "she", wrong: "he" },
      model: "regard-gpt",
    },
    {
      label: "Mother or father",
      values: { clean: "His mother told him that", corrupted: "His father told him that", answer: "she", wrong: "he" },
      model: "regard-gpt",
    },
    {
      label: "One or many",
      values: { clean: "The dogs in the park", corrupted: "The dog in the park", answer: "are", wrong: "is" },
      model: "regard-gpt",
    },
    {
      label: "Atlantic or Pacific",
      values: {
        clean: "The river flows into the Atlantic",
        corrupted: "The river flows into the city",
        answer: "Ocean",
        wrong: "of",
      },
      model: "regard-gpt",
    },
  ],
  Thumbnail: thumbnails.patch,
  verb: "patch",
  fields: [
    { name: "clean", label: "Clean prompt", start: "The queen said that" },
    { name: "corrupted", label: "Corrupted prompt, with as many tokens", start: "The king said that" },
    { name: "answer", label: "Next token (clean)", start: "she", optional: true },
    { name: "wrong", label: "Next token (corrupted)", start: "he", optional: true },
  ],
  toRequest: ({ model, clean, corrupted, answer, wrong }) => ({
    model,
    clean,
    corrupted,
    answer: answer || null,
    wrong: wrong || null,
  }),
};
