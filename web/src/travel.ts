// What goes from view to view: the sentence, a second one, the layer, the selected word and the model. And the texts
// used last.
import { can } from "./api";
import { defaultModel, suits, translates } from "./models";
import { currentRoute, formatRoute, frameParameters, type Route, withoutEmpty } from "./route";
import { store } from "./store";
import type { ModelState } from "./types";
import type { Arguments, Example, Payload, View } from "./view";

export interface Shared {
  readonly text: string;
  readonly second: string;
  readonly layer: string;
  readonly token: string;
  readonly model: string;
}

/** What the user chose last; null until then, so that every view starts with its own example. */
export const shared = store<Shared | null>(null);

/** What a view's result has for other views; null without a sentence. */
export function sharedBy(view: View, args: Arguments, payload: Payload | null, route: Route): Shared | null {
  const { text, second, layer, token } = view.travels ?? {};
  const sentence = text && args[text];
  if (!sentence) return null;
  return {
    text: sentence,
    second: (second && args[second]) || "",
    layer: (layer && route.parameters["layer"]) || "",
    token: (token && ((payload && view.token?.(payload, route)) ?? route.parameters["token"])) || "",
    model: args["model"] ?? "",
  };
}

/** The route of a view with what another one shares; null if the view cannot use its sentence. */
export function routeWith(
  { text, second, layer, token, model }: Shared,
  view: View,
  models: readonly ModelState[],
): Route | null {
  const { travels } = view;
  if (!travels?.text) return null;
  const source = models.find((one) => one.name === model);
  const target = source && suits(view, source) ? source : models.find((one) => one.name === defaultModel(view, models));
  // a translator reads another language
  if (!target || !suits(view, target) || translates(source) !== translates(target)) return null;
  const same = target === source;
  const parameters = {
    [travels.text]: text,
    ...(travels.second && { [travels.second]: second }),
    ...(travels.layer && same && { layer }),
    ...(travels.token && { token }),
    model: target.name,
  };
  return { view: view.name, parameters: withoutEmpty(parameters) };
}

/** The address of a view in the menu: with what the user chose, or as it starts. */
export function addressOf(view: View, models: readonly ModelState[], carried: Shared | null): string {
  const route = (carried && routeWith(carried, view, models)) ?? { view: view.name, parameters: {} };
  return formatRoute({ ...route, parameters: { ...route.parameters, ...frameParameters(currentRoute.get()) } });
}

/** The model of an example: the one it names, else `wanted` or the view's own if it can do what the example needs. */
function exampleModel(
  view: View,
  example: Example,
  models: readonly ModelState[],
  wanted: string | undefined,
): ModelState | undefined {
  const find = (name: string | undefined) =>
    models.find(
      (one) =>
        one.name === name && one.state !== "failed" && suits(view, one) && (!example.needs || can(one, example.needs)),
    );
  return find(example.model) ?? find(wanted) ?? find(defaultModel(view, models));
}

/** What an example selects belongs to the model that it names. */
const selectOf = ({ model, select = {} }: Example, used: string) => (!model || model === used ? select : {});

/** The route of an example. */
export function exampleRoute(view: View, example: Example, models: readonly ModelState[], wanted?: string): Route {
  const model = exampleModel(view, example, models, wanted)?.name ?? wanted ?? "";
  return { view: view.name, parameters: withoutEmpty({ ...example.values, ...selectOf(example, model), model }) };
}

/**
 * What a view's address needs to open on its first example, beside the initial values of its fields. If a model is
 * wanted, it stays.
 */
export function startParameters(view: View, models: readonly ModelState[], wanted?: string): Arguments {
  const candidates = (view.examples ?? []).map((example) => ({
    example,
    model: exampleModel(view, example, models, wanted),
  }));
  const found = candidates.find(
    ({ example, model }) =>
      model && (!wanted || model.name === wanted) && (!example.model || example.model === model.name),
  );
  if (!found) return {};
  const { example, model } = found;
  const values = Object.entries(example.values).filter(
    ([name, value]) => value !== view.fields.find((field) => field.name === name)?.start,
  );
  return {
    ...Object.fromEntries(values),
    ...selectOf(example, model!.name),
    ...(example.model && { model: example.model }),
  };
}

/** A text that was used, with the address of its view. */
export interface Recent {
  readonly text: string;
  readonly title: string;
  readonly address: string;
}

const KEY = "regard-recent";
const MAX_RECENT = 8;
const MAX_LENGTH = 2_000; // characters of an address

function storedTexts(): readonly Recent[] {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY) ?? "[]") as unknown;
    return Array.isArray(stored)
      ? (stored as Recent[]).filter(
          (one) => typeof one.text === "string" && typeof one.address === "string" && one.address.startsWith("#"),
        )
      : [];
  } catch {
    return [];
  }
}

let recent: readonly Recent[] | null = null;
export const recentTexts = (): readonly Recent[] => (recent ??= storedTexts());

function storeTexts(texts: readonly Recent[]): void {
  recent = texts;
  try {
    localStorage.setItem(KEY, JSON.stringify(texts));
  } catch {
    // they are kept until the page is closed
  }
}

export const clearRecent = () => storeTexts([]);

export function remember(view: View, text: string, route: Route): void {
  const address = formatRoute({ view: view.name, parameters: route.parameters });
  if (!text.trim() || address.length > MAX_LENGTH) return;
  storeTexts(
    [{ text, title: view.title, address }, ...recentTexts().filter((one) => one.text !== text)].slice(0, MAX_RECENT),
  );
}
