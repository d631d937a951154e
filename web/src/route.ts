// Where the user is: the address behind the #, such as #attention?text=the+cat&layer=3. It is the permalink of what is
// shown: the view, its arguments and what was chosen in it. Knows the address bar and no view.
import { store } from "./store";

export interface Route {
  readonly view: string;
  readonly parameters: Readonly<Record<string, string>>;
}

export function parseRoute(hash: string): Route {
  const [view = "", query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

export function formatRoute(place: Route): string {
  const query = new URLSearchParams(place.parameters).toString();
  return `#${place.view}${query && `?${query}`}`;
}

export const currentRoute = store<Route>(parseRoute(location.hash));
addEventListener("hashchange", () => currentRoute.set(parseRoute(location.hash)));

/** Go somewhere; `step` makes it one the Back button returns from. */
export function navigate(next: Route, { step = false } = {}): void {
  try {
    history[step ? "pushState" : "replaceState"](null, "", formatRoute(next));
  } catch {
    // Browsers limit how often and where the address may change; what is shown need not wait for that.
  }
  currentRoute.set(next);
}

/** Change some parameters of the current place; an empty value removes one. */
export function setParameters(changes: Readonly<Record<string, string>>): void {
  const { view, parameters } = currentRoute.get();
  const merged = { ...parameters, ...changes };
  navigate({ view, parameters: Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== "")) });
}

/** A integerParameter number among the parameters, from 0 up to but without `count`. */
export function integerParameter(parameters: Route["parameters"], name: string, count: number, otherwise = 0): number {
  const value = Number.parseInt(parameters[name] ?? "", 10);
  return Number.isInteger(value) && value >= 0 && value < count ? value : otherwise;
}
