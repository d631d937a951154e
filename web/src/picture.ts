// The picture of a view as an SVG document: cut to what is drawn, with a caption that names the text and the model.
import { type Caption, svgDocument } from "./painter";
import type { Route } from "./route";
import type { Payload, View } from "./view";

const CREDIT = "Made with Regard";

/** The SVG document of what a route selects; a PNG is made of it. */
export function pictureOf(view: View, payload: Payload, route: Route): string {
  return svgDocument(view.drawing(payload, route), payload.title ?? view.title, captionOf(payload));
}

/** What the payloads of the views call the model and the text. */
interface Captioned {
  readonly model?: string | { readonly name: string };
  readonly text?: string;
  readonly target?: string | null;
  readonly texts?: readonly (string | { readonly text: string })[] | object;
  readonly read?: number;
  readonly rows?: number | readonly unknown[];
  readonly runs?: readonly { readonly model: string; readonly prompt: string }[];
  readonly sentences?: readonly { readonly text: string; readonly model?: string }[];
  readonly trace?: { readonly about: { readonly prompt?: unknown; readonly text?: unknown; readonly model?: unknown } };
}

/** The text and the model of a result, and the credit. */
export function captionOf(payload: Payload): Caption {
  const one = payload as Payload & Captioned;
  const listed =
    one.runs?.map(({ prompt }) => prompt) ??
    one.sentences?.map(({ text }) => text) ??
    (Array.isArray(one.texts) ? one.texts.map((item) => (typeof item === "string" ? item : item.text)) : []);
  const texts =
    one.text !== undefined
      ? [one.text, ...(one.target ? [one.target] : [])]
      : [...new Set(listed.filter((text) => typeof text === "string" && text))];
  const about = one.trace?.about;
  const text =
    texts.length > 2
      ? `${texts.length} texts, the first: “${texts[0]}”`
      : texts.map((each) => `“${each}”`).join(" · ") || (about ? `“${String(about.prompt ?? about.text ?? "")}”` : "");
  const names = [
    typeof one.model === "string" ? one.model : one.model?.name,
    ...(one.runs ?? []).map((run) => run.model),
    ...(one.sentences ?? []).map((each) => each.model),
    about?.model,
  ];
  const models = [...new Set(names.filter((name): name is string => typeof name === "string" && name !== ""))];
  return { text: text === "“”" ? "" : text, credit: [...models, CREDIT].join(" · ") };
}
