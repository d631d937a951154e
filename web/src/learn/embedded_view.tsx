// A view inside a chapter: the real view in a frame of its own, since its route, keys and ids must not mix with the
// chapter's. The frame's document is this one's script and style with the data of the view.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatRoute } from "../route";
import { colors } from "../theme";
import type { ViewPart } from "../types";

/** What a framed page tells the page around it. */
interface FrameMessage {
  readonly regard: "frame";
  readonly height?: number;
  readonly key?: string;
}

const KEYS = ["ArrowLeft", "ArrowRight", "PageUp", "PageDown", "Escape"];

/** In a frame: reports the height of the page, and keys that it does not use itself. */
export function reportToParent(): void {
  if (parent === window) return;
  const send = (message: Omit<FrameMessage, "regard">) => parent.postMessage({ regard: "frame", ...message }, "*");
  const root = document.getElementById("page")!;
  new ResizeObserver(() => send({ height: Math.ceil(root.getBoundingClientRect().bottom + scrollY) })).observe(root);
  addEventListener("keydown", (event) => {
    if (
      !event.defaultPrevented &&
      KEYS.includes(event.key) &&
      !(event.target as HTMLElement).matches("select, input, textarea, .wide")
    )
      send({ key: event.key });
  });
}

export function EmbeddedView({ part, onKey }: { part: ViewPart; onKey?: (key: string) => void }) {
  const { dark } = colors.use();
  const frame = useRef<HTMLIFrameElement>(null);
  const [height, setHeight] = useState(320);
  const page = useMemo(() => framedPage(part, dark ? "dark" : "light"), [part, dark]);
  useEffect(() => {
    const receive = ({ source, data }: MessageEvent<FrameMessage | null>) => {
      if (source !== frame.current?.contentWindow || data?.regard !== "frame") return;
      if (typeof data.height === "number") setHeight(Math.min(Math.max(data.height, 60), 4000));
      if (typeof data.key === "string") onKey?.(data.key);
    };
    addEventListener("message", receive);
    return () => removeEventListener("message", receive);
  }, [onKey]);
  return (
    <iframe
      ref={frame}
      class="embedded"
      title={`${part.title}, a live view`}
      srcdoc={page}
      style={{ height: `${height}px` }}
    />
  );
}

/** A complete page of the part's view without its frame. */
function framedPage({ payload, route }: ViewPart, theme: string): string {
  const place = formatRoute({ view: String(payload!["view"]), parameters: { ...route, embed: "1" } });
  const page = document.implementation.createHTMLDocument("Regard");
  page.documentElement.lang = "en";
  for (const one of document.head.querySelectorAll("meta, style")) page.head.append(page.importNode(one, true));
  const root = page.createElement("div");
  root.id = "page";
  const data = page.createElement("script");
  data.type = "application/json";
  data.id = "regard";
  data.textContent = JSON.stringify({ ...payload, place, theme }).replaceAll("<", "\\u003c");
  const script = page.createElement("script");
  script.textContent = document.querySelector("body > script:not([type])")!.textContent;
  page.body.append(root, data, script);
  return `<!doctype html>\n${page.documentElement.outerHTML}`;
}
