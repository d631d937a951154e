// Similarity: how well each of several texts describes an image (CLIP), as bars of their probabilities.
import { Notes } from "../components";
import { fixedPercent, quoted } from "../format";
import { type Part, stack, textPart, wrap } from "../painter";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { TextSimilarity } from "../types";
import type { View, ViewOf } from "../view";
import "./similarity/similarity.css";

type SimilarityPayload = ViewOf<"similarity">;

const WIDTH = 760;
const BARS = 200; // pixels of the longest bar
const LINE = 88; // characters

const ranked = ({ texts }: SimilarityPayload) => [...texts].sort((a, b) => b.probability - a.probability);

const numbers = ({ probability, cosine }: TextSimilarity) =>
  `${fixedPercent(probability, 1)}, cosine ${cosine.toFixed(3)}`;

function Show({ payload }: { payload: SimilarityPayload }) {
  return (
    <section aria-label="Probabilities of the texts">
      <Notes notes={payload.notes} class="muted" />
      <div class="similarity">
        {/* biome-ignore lint/a11y/noRedundantAlt: the image is what the model reads, so the word says something */}
        <img src={payload.picture} alt="The image as the model reads it" />
        <ol>
          {ranked(payload).map((one, number) => (
            <li key={number}>
              <bdi>{one.text}</bdi>
              <i style={{ width: `${100 * one.probability}%` }} aria-hidden="true" />
              <span>{numbers(one)}</span>
            </li>
          ))}
        </ol>
      </div>
      <p class="muted">
        The probabilities compare the texts with each other and add up to 100%. The cosine compares one text with the
        image.
      </p>
    </section>
  );
}

function drawing(payload: SimilarityPayload) {
  const bars = ranked(payload).flatMap((one): Part[] => [
    ...wrap(one.text, LINE).map((line) => textPart(line)),
    [
      30,
      (painter, y) => {
        const width = BARS * one.probability;
        painter.rect(20, y + 2, width, 14, colors.get().accent, 0.8);
        painter.text(numbers(one), 28 + width, y + 9, { size: 12 });
      },
    ],
  ]);
  return stack([textPart(`${payload.model}: texts about the image`, { bold: true }, 32), ...bars], WIDTH);
}

const DIGITS = "a handwritten seven\na handwritten one\na photo of a dog\na page of text";

export const similarity: View<SimilarityPayload> = {
  name: "similarity",
  title: "Image and texts",
  about:
    "Which of several texts describes an image best? An image-text model such as CLIP classifies images without " +
    "training.",
  group: "predict",
  verb: "similarity",
  Thumbnail: thumbnails.similarity,
  needs: {
    capability: "image-text",
    without: "does not compare images with texts.",
    models: "Models that do",
    advice:
      "None of the studio's models does. Start the studio with a CLIP: regard studio --model " +
      "openai/clip-vit-base-patch32.",
  },
  examples: [
    { label: "A seven", values: { image: "digit-7", texts: DIGITS } },
    { label: "A two or a seven", values: { image: "digit-2-or-7", texts: "the number two\nthe number seven" } },
    { label: "A four or a nine", values: { image: "digit-4-or-9", texts: "the number four\nthe number nine" } },
    { label: "Digit or letter", values: { image: "digit-0", texts: "the digit zero\nthe letter O\nthe letter Q" } },
  ],
  finding: (payload) => {
    const [best] = ranked(payload);
    return best
      ? `Of ${payload.texts.length} texts, ${payload.model} finds ${quoted(best.text)} the best description of the ` +
          `image (${fixedPercent(best.probability, 1)})`
      : "";
  },
  fields: [
    { name: "image", label: "Image (PNG or JPEG, at most 8 MB)", start: "digit-7", image: true },
    {
      name: "texts",
      label: "Texts, one per line",
      lines: 5,
      start: DIGITS,
      withImage: true,
      required: "Write one or more texts that may describe the image.",
    },
  ],
  toRequest: ({ model, image, texts = "" }) => ({
    model,
    image,
    texts: texts
      .split("\n")
      .map((text) => text.trim())
      .filter(Boolean),
  }),
  Show,
  drawing,
  table: ({ texts }) => ({
    headers: ["text", "probability", "cosine"],
    rows: texts.map((one) => [one.text, one.probability, one.cosine]),
  }),
};
