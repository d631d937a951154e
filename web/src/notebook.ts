// A page in the frame of a notebook's widget: it reports what is selected in it, and follows a selection of the
// notebook.
import { currentRoute, navigate, type Route } from "./route";

/** Tells the page around this one the route. */
export function reportRoute(route: Route): void {
  if (parent !== window) parent.postMessage({ regard: "frame", route }, "*");
}

/** Selects what the page around this one asks for. */
export function followParent(): void {
  if (parent === window) return;
  addEventListener(
    "message",
    ({ source, data }: MessageEvent<{ regard?: string; parameters?: Readonly<Record<string, unknown>> } | null>) => {
      if (source !== parent || data?.regard !== "select" || typeof data.parameters !== "object") return;
      const parameters = Object.entries(data.parameters).map(([name, value]) => [name, String(value)]);
      navigate({ view: currentRoute.get().view, parameters: Object.fromEntries(parameters) });
    },
  );
}
