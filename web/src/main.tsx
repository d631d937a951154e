// Entry point of the studio and of exported files: renders the payload embedded in the page. In the library's
// JavaScript engine, which has no document, it defines `drawSvg` instead.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { studioModels } from "./api";
import { ViewWithExports } from "./export_panel";
import { reportToParent } from "./learn/embedded_view";
import { followParent, reportRoute } from "./notebook";
import { pictureOf } from "./picture";
import { currentRoute, followAddress, frameOf, navigate, parseRoute, type Route } from "./route";
import { Studio, useFrame } from "./studio";
import "./style.css";
import "./shell.css";
import { followTheme, ThemeSwitch } from "./theme";
import type { ModelState } from "./types";
import type { Payload } from "./view";
import { views } from "./views";

function ExportedPage({ payload }: { payload: Payload }) {
  const view = views.find((one) => one.name === payload.view);
  const title = payload.title ?? view?.title ?? "Regard";
  const route = currentRoute.use();
  const frame = frameOf(route);
  useFrame(frame);
  useEffect(() => reportRoute(route), [route]);
  document.title = title === "Regard" ? title : `Regard: ${title}`;
  return (
    <>
      {frame !== "embed" && (
        <header class="top">
          <h1>{title}</h1>
          {frame === "full" && <ThemeSwitch />}
        </header>
      )}
      <main class="result">
        {view ? (
          <ViewWithExports view={view} payload={payload} frame={frame} />
        ) : (
          <p class="error">This page has no view {payload.view}.</p>
        )}
      </main>
      {frame === "full" && <footer class="muted">Made by Regard.</footer>}
    </>
  );
}

function openPage(): void {
  const payload = JSON.parse(document.getElementById("regard")!.textContent!) as Payload & { models?: ModelState[] };
  followTheme(payload.theme);
  followAddress();
  if (payload.models) studioModels.set(payload.models);
  if (payload.view !== "studio" && !currentRoute.get().view) navigate(parseRoute(payload.place ?? payload.view));
  const root = document.getElementById("page")!;
  root.textContent = "";
  if (frameOf(currentRoute.get()) === "embed") reportToParent();
  if (payload.view !== "studio") followParent();
  render(payload.view === "studio" ? <Studio /> : <ExportedPage payload={payload} />, root);
}

/** The SVG of what a route selects, from JSON. */
function drawSvg(payloadJson: string, routeJson: string): string {
  const payload = JSON.parse(payloadJson) as Payload;
  const view = views.find((one) => one.name === payload.view)!;
  return pictureOf(view, payload, JSON.parse(routeJson) as Route);
}

if (typeof document === "undefined") Object.assign(globalThis, { drawSvg });
else openPage();
