// Where the user is: the address behind the #, such as #attention?text=the+cat&layer=3. It is the permalink of what is
// shown: the view, its arguments and what was chosen in it. Knows the address bar and no view.
import { store } from "./store";

export interface Place {
  readonly view: string;
  readonly parameters: Readonly<Record<string, string>>;
}

export function parse(hash: string): Place {
  const [view = "", query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

export function format(place: Place): string {
  const query = new URLSearchParams(place.parameters).toString();
  return `#${place.view}${query && `?${query}`}`;
}

export const place = store<Place>(parse(location.hash));
addEventListener("hashchange", () => place.set(parse(location.hash)));

/** Go somewhere; `step` makes it one the Back button returns from. */
export function go(next: Place, { step = false } = {}): void {
  try {
    history[step ? "pushState" : "replaceState"](null, "", format(next));
  } catch {
    // Browsers limit how often and where the address may change; what is shown need not wait for that.
  }
  place.set(next);
}

/** Change some parameters of the current place; an empty value removes one. */
export function choose(changes: Readonly<Record<string, string>>): void {
  const { view, parameters } = place.get();
  const merged = { ...parameters, ...changes };
  go({ view, parameters: Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== "")) });
}

/** A whole number among the parameters, from 0 up to but without `count`. */
export function whole(parameters: Place["parameters"], name: string, count: number, otherwise = 0): number {
  const value = Number.parseInt(parameters[name] ?? "", 10);
  return Number.isInteger(value) && value >= 0 && value < count ? value : otherwise;
}
