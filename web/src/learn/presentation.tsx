// A chapter for a lecture: one part at a time in large type; arrow keys go from step to step, and the address has the
// step.
import { useEffect, useRef } from "preact/hooks";
import { currentRoute, integerParameter, setParameters } from "../route";
import type { Lesson } from "../types";
import { Reading } from "./chapter";
import type { Loader } from "./content";
import { ShowPart } from "./parts";

const FORWARD = ["ArrowRight", "ArrowDown", "PageDown", " "];
const BACK = ["ArrowLeft", "ArrowUp", "PageUp"];

export function Presentation({ lesson, load }: { lesson: Lesson; load: Loader }) {
  const { parameters } = currentRoute.use();
  const steps = lesson.parts.length + 1 + (lesson.reading.length ? 1 : 0);
  const step = integerParameter(parameters, "step", steps);
  const page = useRef<HTMLDivElement>(null);
  const go = (next: number) => setParameters({ step: String(Math.min(Math.max(next, 0), steps - 1)) });
  const leave = () =>
    setParameters({ present: "", step: "", part: step > 0 ? (lesson.parts[step - 1]?.name ?? "") : "" });
  const press = (key: string): boolean => {
    if (FORWARD.includes(key)) go(step + 1);
    else if (BACK.includes(key)) go(step - 1);
    else if (key === "Home") go(0);
    else if (key === "End") go(steps - 1);
    else if (key === "Escape") leave();
    else if (key === "f") toggleFullScreen();
    else return false;
    return true;
  };
  const handler = useRef(press);
  handler.current = press;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (
        event.defaultPrevented ||
        event.ctrlKey ||
        event.altKey ||
        event.metaKey ||
        target.matches("select, input, textarea, .wide")
      )
        return;
      if (event.key === " " && target.matches("button, a")) return;
      if (handler.current(event.key)) event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
  useEffect(() => {
    page.current?.scrollTo(0, 0);
  }, [step]);
  const part = lesson.parts[step - 1];
  return (
    <div class="presentation">
      <div class="step" ref={page} data-step={step}>
        {step === 0 ? (
          <div class="part title">
            <p class="muted">Chapter {lesson.number}</p>
            <h1>{lesson.title}</h1>
            <p>{lesson.summary}</p>
          </div>
        ) : part ? (
          <ShowPart
            key={`${lesson.chapter}/${part.name}`}
            lesson={lesson}
            part={part}
            load={load}
            onKey={(key) => void press(key)}
          />
        ) : (
          <Reading entries={lesson.reading} />
        )}
      </div>
      <nav class="steps" aria-label="Steps">
        <button type="button" aria-label="Previous step" disabled={step === 0} onClick={() => go(step - 1)}>
          ‹
        </button>
        <span aria-live="polite">
          {step + 1} / {steps}
        </span>
        <button type="button" aria-label="Next step" disabled={step === steps - 1} onClick={() => go(step + 1)}>
          ›
        </button>
        <span class="muted name">{lesson.title}</span>
        <button type="button" onClick={toggleFullScreen}>
          Full screen
        </button>
        <button type="button" onClick={leave}>
          Leave
        </button>
      </nav>
    </div>
  );
}

function toggleFullScreen(): void {
  const change = document.fullscreenElement
    ? document.exitFullscreen()
    : document.documentElement.requestFullscreen?.();
  change?.catch(() => undefined); // not allowed here
}
