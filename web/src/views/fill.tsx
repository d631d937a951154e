// Fill: the likeliest words for each blank of a text, or words of the reader's choice.
import { DataTable } from "../components";
import { fixedPercent, quoted, visible } from "../format";
import { type Part, stack, textPart, wrap } from "../painter";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { BlankCandidate } from "../types";
import type { View, ViewOf } from "../view";
import "./fill/fill.css";

type FillPayload = ViewOf<"fill">;

const WIDTH = 760;
const NAMES = 240; // pixels

function Show({ payload }: { payload: FillPayload }) {
  const several = payload.masks.length > 1;
  const pieces = payload.masks.some((candidates) => candidates.some(({ ids }) => ids.length > 1));
  return (
    <section aria-label="Words for the blanks">
      {payload.masks.map((candidates, blank) => (
        <div key={blank}>
          {several && <h2>Blank {blank + 1}, with the others masked</h2>}
          <ol class="fill-bars">
            {candidates.map((one) => (
              <li key={one.ids.join(" ")}>
                <bdi class="token">{spelling(one)}</bdi>
                <i style={{ width: `${100 * share(one, candidates)}%` }} aria-hidden="true" />
                <span>{probabilityText(one)}</span>
              </li>
            ))}
          </ol>
        </div>
      ))}
      {pieces && (
        <p class="muted">
          A word of several pieces gets a mask for each of them; they are filled in from left to right, and the
          probability is the product of the steps. Compare words of as many pieces, or the mean log-probability per
          piece.
        </p>
      )}
      {several && (
        <>
          <h2>Together, filled in from left to right</h2>
          <DataTable
            label="Together"
            headers={["text", "probability"]}
            rows={payload.joint.map((one) => [one.text, fixedPercent(one.probability, 3)])}
          />
          {!payload.exact && <p class="muted">The best that a beam search found; a likelier combination may exist.</p>}
        </>
      )}
    </section>
  );
}

/** Pieces are separated by spaces. */
const spelling = ({ token, ids }: BlankCandidate) => (ids.length > 1 ? token : visible(token));

const share = (one: BlankCandidate, all: readonly BlankCandidate[]) =>
  one.probability / Math.max(1e-12, ...all.map(({ probability }) => probability));

function probabilityText({ probability, ids }: BlankCandidate): string {
  const text = probability >= 5e-6 ? fixedPercent(probability, 3) : `${(100 * probability).toExponential(1)}%`;
  return ids.length > 1 ? `${text} (${(Math.log(probability) / ids.length).toFixed(2)} nats per piece)` : text;
}

function drawing(payload: FillPayload) {
  const bar = (one: BlankCandidate, all: readonly BlankCandidate[]): Part => [
    22,
    (painter, y) => {
      painter.text(spelling(one), 20, y + 10, { mono: true });
      const width = (WIDTH - NAMES - 260) * share(one, all);
      painter.rect(NAMES, y + 3, width, 14, colors.get().accent, 0.8);
      painter.text(probabilityText(one), NAMES + width + 8, y + 10, { size: 12 });
    },
  ];
  const blanks = payload.masks.flatMap((candidates, blank) => [
    ...(payload.masks.length > 1 ? [textPart(`Blank ${blank + 1}`, { bold: true }, 30)] : []),
    ...candidates.map((one) => bar(one, candidates)),
  ]);
  return stack([...wrap(payload.text, 90).map((line) => textPart(line, { bold: true })), ...blanks], WIDTH);
}

export const fill: View<FillPayload> = {
  name: "fill",
  title: "Fill in",
  about: "The words that a masked language model finds likely for the blanks of a text.",
  verb: "fill",
  Thumbnail: thumbnails.fill,
  group: "predict",
  needs: {
    capability: "masked-lm",
    without: "has no masked-word head, so it cannot fill in blanks.",
    models: "Models that can",
    advice: "None of the studio's models can; start it with a BERT: regard studio --model regard-bert.",
  },
  examples: [
    { label: "The skit", values: { text: "Let's stick to _ in this skit" } },
    {
      label: "Words of your choice",
      values: { text: "Let's stick to _ in this skit", targets: "improvisation\nmusic\nsilence\naardvark" },
    },
    { label: "Snow", values: { text: "In winter the fields are _ with snow." } },
    { label: "Two blanks", values: { text: "The _ was too _ to cross the street." } },
  ],
  travels: { text: "text" },
  finding: ({ model, masks, text }) => {
    const best = masks.flatMap((candidates) => candidates.slice(0, 1));
    if (best.length > 1)
      return (
        `For ${model} the likeliest words for the blanks of ${quoted(text)} are ` +
        `${best.map(({ token }) => quoted(token)).join(", ")}.`
      );
    return best[0]
      ? `For ${model} the likeliest word for the blank of ${quoted(text)} is ${quoted(best[0].token)}, with ` +
          `${fixedPercent(best[0].probability, 1)}.`
      : "";
  },
  fields: [
    { name: "text", label: "Text; _ or [MASK] marks each blank", lines: 2, start: "Let's stick to _ in this skit" },
    { name: "targets", label: "Score only these words, one per line (optional)", lines: 3, optional: true, start: "" },
  ],
  toRequest: ({ text, model, targets }) => ({
    text,
    model,
    ...(targets?.trim() && {
      targets: targets
        .split(/[\n,]/)
        .map((word) => word.trim())
        .filter(Boolean),
    }),
  }),
  Show,
  drawing,
  table: ({ masks }) => ({
    headers: ["blank", "token", "id", "probability", "pieces"],
    rows: masks.flatMap((candidates, blank) =>
      candidates.map((one) => [blank, one.token, one.id, one.probability, one.ids.length]),
    ),
  }),
};
