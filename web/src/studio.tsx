// The studio: its menu, and the page or view that the route names.
import { useEffect, useLayoutEffect } from "preact/hooks";
import { useModels } from "./models";
import { Navigation } from "./navigation";
import { pages } from "./pages";
import { currentRoute, frameOf, navigate, type Route } from "./route";
import { startParameters } from "./travel";
import type { ModelState } from "./types";
import type { View } from "./view";
import { ViewRequest } from "./view_request";
import { views } from "./views";

const menu = views.filter((view) => view.verb); // the other views only show results of the command line

export function Studio() {
  const models = useModels();
  const route = currentRoute.use();
  const view = menu.find((one) => one.name === route.view);
  const page = view ? undefined : (pages.find((one) => one.name === route.view) ?? pages[0]!);
  const frame = frameOf(route);
  const opened = useOpening(view, route, models);
  useEffect(() => {
    document.title = view ? `Regard: ${view.title}` : page === pages[0] ? "Regard" : `Regard: ${page!.title}`;
    scrollTo(0, 0);
  }, [view, page]);
  useFrame(frame);
  return (
    <>
      {frame === "full" && <Navigation views={menu} models={models} current={(view ?? page)!.name} />}
      <main>
        {page && <page.Show models={models} views={menu} />}
        {view && frame !== "embed" && (
          <div class="intro">
            <h1>{view.title}</h1>
            {frame === "full" && <p>{view.about}</p>}
          </div>
        )}
        {view && opened && <ViewRequest key={view.name} view={view} views={menu} models={models} />}
      </main>
    </>
  );
}

/** Opens a view that is given without arguments on its first example. Whether the route is final. */
function useOpening(view: View | undefined, route: Route, models: readonly ModelState[]): boolean {
  const { model, embed: _, present: __, ...rest } = route.parameters;
  const start = view && Object.keys(rest).length === 0 ? startParameters(view, models, model) : {};
  const final = Object.entries(start).every(([name, value]) => route.parameters[name] === value);
  useLayoutEffect(() => {
    if (!final) navigate({ view: route.view, parameters: { ...route.parameters, ...start } });
  }, [route, final]);
  return final;
}

/** The style sheet knows the frame from the document. */
export function useFrame(frame: string): void {
  useLayoutEffect(() => {
    document.documentElement.dataset["frame"] = frame;
  }, [frame]);
}
