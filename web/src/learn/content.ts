// The computed content of a chapter's parts: loaded one by one when they come into view, and kept while the page is
// open.
import { useEffect, useRef, useState } from "preact/hooks";
import type { VerbEvent } from "../api";
import type { Lesson } from "../types";

export type Part = Lesson["parts"][number];

/** Computes one part; null in an exported file, which has what was computed when it was written. */
export type Loader = ((name: string, onProgress: (text: string) => void, signal: AbortSignal) => Promise<Part>) | null;

export type Content =
  | { readonly state: "idle" }
  | { readonly state: "computing"; readonly progress: string }
  | { readonly state: "failed"; readonly error: string }
  | { readonly state: "done"; readonly part: Part };

/** Whether there is nothing left to compute. */
export function isComputed(part: Part): boolean {
  switch (part.kind) {
    case "computed":
      return part.blocks !== null;
    case "view":
      return part.payload !== null;
    case "exercise":
      return part.answer !== null;
    default:
      return true;
  }
}

export const progressText = (event: VerbEvent) =>
  event.type === "progress"
    ? `${event.stage}: ${event.done}${event.total === null ? "" : ` of ${event.total}`} ${event.unit} …`
    : event.type === "note"
      ? event.message
      : "";

let last: Promise<unknown> = Promise.resolve();

/** One after the other, in the order of the calls. */
function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const next = last.then(work, work);
  last = next.catch(() => undefined);
  return next;
}

const computed = new Map<string, Part>();

/** The content of a part, and a function that starts to compute it; `key` identifies it among all chapters. */
export function useContent(key: string, part: Part, load: Loader): [Content, () => void] {
  const known = isComputed(part) ? part : computed.get(key);
  const [content, setContent] = useState<Content>({ state: "idle" });
  const controller = useRef<AbortController | null>(null);
  useEffect(
    () => () => {
      controller.current?.abort();
      controller.current = null;
      setContent({ state: "idle" });
    },
    [key],
  );
  const start = () => {
    if (!load || known || controller.current) return;
    controller.current = new AbortController();
    const { signal } = controller.current;
    const show = (next: Content) => signal.aborted || setContent(next);
    show({ state: "computing", progress: "" });
    const work = () =>
      signal.aborted
        ? Promise.reject(new Error("not needed anymore"))
        : load(part.name, (progress) => show({ state: "computing", progress }), signal);
    // What the reader asked for does not wait for what is only in view.
    ("slow" in part && part.slow ? work() : inTurn(work)).then(
      (one) => {
        computed.set(key, one);
        show({ state: "done", part: one });
      },
      (error: Error) => {
        show({ state: "failed", error: error.message });
        if (!signal.aborted) controller.current = null; // it may be tried again
      },
    );
  };
  return [known ? { state: "done", part: known } : content, start];
}

/** Calls `onVisible` once the element is in view, or nearly. */
export function useVisible<E extends HTMLElement>(onVisible: () => void, key: string) {
  const ref = useRef<E>(null);
  const call = useRef(onVisible);
  call.current = onVisible;
  useEffect(() => {
    if (!ref.current) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        call.current();
      },
      { rootMargin: "300px 0px" },
    );
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, [key]);
  return ref;
}
