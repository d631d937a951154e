// The address after the #, such as #attention?text=the+cat&layer=3: the view, its arguments and what is selected in it.
// It is a permalink, also in exported files.
import { store } from "./store";

export interface Route {
  readonly view: string;
  readonly parameters: Readonly<Record<string, string>>;
}

export function parseRoute(hash: string): Route {
  const [view = "", query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

export function formatRoute({ view, parameters }: Route): string {
  const query = new URLSearchParams(parameters).toString();
  return `#${view}${query && `?${query}`}`;
}

/** Parameters without the empty ones. */
export const withoutEmpty = (parameters: Route["parameters"]): Route["parameters"] =>
  Object.fromEntries(Object.entries(parameters).filter(([, value]) => value !== ""));

export const currentRoute = store<Route>({ view: "", parameters: {} });

/** Reads the route from the address, now and when it changes. */
export function followAddress(): void {
  const read = () => currentRoute.set(parseRoute(location.hash));
  addEventListener("hashchange", read);
  read();
}

/**
 * How much of the studio surrounds a view: all of it, nothing (`embed=1`, for slides), or only its headline in large
 * type (`present=1`).
 */
export type Frame = "full" | "embed" | "present";

const FRAMES = ["embed", "present"] as const;

export const frameOf = ({ parameters }: Route): Frame => FRAMES.find((one) => parameters[one] === "1") ?? "full";

/** The parameters of the frame, which stay when another view is opened. */
export const frameParameters = ({ parameters }: Route) =>
  Object.fromEntries(FRAMES.flatMap((one) => (parameters[one] ? [[one, parameters[one]]] : [])));

/** Changes the route; with `push`, the Back button returns to the previous one. */
export function navigate(next: Route, { push = false } = {}): void {
  try {
    history[push ? "pushState" : "replaceState"](null, "", formatRoute(next));
  } catch {
    // Browsers limit how often and where the address may change; the page itself does not depend on it.
  }
  currentRoute.set(next);
}

/** Changes some parameters of the current route; an empty value removes one. */
export function setParameters(changes: Readonly<Record<string, string>>): void {
  const { view, parameters } = currentRoute.get();
  const merged = Object.entries({ ...parameters, ...changes }).filter(([name]) => changes[name] !== "");
  navigate({ view, parameters: Object.fromEntries(merged) });
}

/** An integer parameter from 0 to `count` - 1, or the fallback. */
export function integerParameter(parameters: Route["parameters"], name: string, count: number, fallback = 0): number {
  const value = Number.parseInt(parameters[name] ?? "", 10);
  return Number.isInteger(value) && value >= 0 && value < count ? value : fallback;
}

/** The layer in the route: from 1, since 0 is the embeddings, which have no attention. */
export function layerParameter(parameters: Route["parameters"], layers: number, fallback = 1): number {
  return integerParameter(parameters, "layer", layers + 1, fallback) || fallback;
}

/**
 * Handler for arrow keys; ignores form fields, regions that scroll and modified keys. `steps` maps a key to an argument
 * of `move`, whose other one is the element of the handler.
 */
export function onArrowKeys<T>(
  steps: Readonly<Record<string, T>>,
  move: (step: T, element: HTMLElement) => void,
): (event: KeyboardEvent) => void {
  return (event) => {
    const target = event.target as HTMLElement;
    if (target.matches("select, input, textarea, .wide") || event.ctrlKey || event.altKey || event.metaKey) return;
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    move(step, event.currentTarget as HTMLElement);
  };
}
