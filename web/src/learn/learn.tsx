// The studio's Learn page: the list of chapters, and a chapter (#learn?chapter=attention).
import { useEffect, useState } from "preact/hooks";
import { runVerb, studioModels } from "../api";
import { ErrorMessage } from "../components";
import { plural } from "../format";
import { currentRoute, formatRoute } from "../route";
import type { ChapterEntry, Lesson } from "../types";
import type { Page, ViewOf } from "../view";
import { useAnswers } from "./answers";
import { Chapter } from "./chapter";
import { type Part, progressText } from "./content";
import "./learn.css";

const POLL = 300; // milliseconds
const outlines = new Map<string, Lesson>(); // by chapter; "" is the list

function Show() {
  const chapter = currentRoute.use().parameters["chapter"] ?? "";
  const [lesson, error] = useOutline(chapter);
  useEffect(() => {
    if (lesson) document.title = `Regard: ${lesson.title}`;
    scrollTo(0, 0);
  }, [lesson]);
  if (error)
    return (
      <div class="learn">
        <ErrorMessage text={error} />
        <p>
          <a href="#learn">All chapters</a>
        </p>
      </div>
    );
  if (!lesson)
    return (
      <p role="status" class="muted">
        Opening the course …
      </p>
    );
  if (!lesson.chapter) return <ChapterList lesson={lesson} />;
  const load = async (part: string, onProgress: (text: string) => void, signal: AbortSignal): Promise<Part> => {
    await modelsLoaded(onProgress, signal);
    const found = await runVerb<ViewOf<"lesson">>(
      "lesson",
      { chapter: lesson.chapter, part },
      (event) => onProgress(progressText(event)),
      signal,
    );
    return found.parts[0]!;
  };
  return (
    <div class="learn">
      <Chapter key={lesson.chapter} lesson={lesson} load={load} />
      <Neighbors lesson={lesson} />
    </div>
  );
}

/** Resolves when no model is being loaded; the studio itself asks for their states. */
async function modelsLoaded(onProgress: (text: string) => void, signal: AbortSignal): Promise<void> {
  for (;;) {
    const waiting = (studioModels.get() ?? []).filter((model) => model.state === "loading").map((model) => model.name);
    if (!waiting.length || signal.aborted) return;
    onProgress(`Waiting for ${waiting.join(", ")} …`);
    await new Promise((resolve) => setTimeout(resolve, POLL));
  }
}

/** The texts of a chapter, or the list of chapters, without anything that takes time. */
export function useOutline(chapter: string): [Lesson | undefined, string] {
  const [, setLoaded] = useState(0); // a number, so that every answer renders the page again
  const [failure, setFailure] = useState<readonly [string, string]>(["", ""]);
  useEffect(() => {
    if (outlines.has(chapter)) return;
    const controller = new AbortController();
    const request = chapter ? { chapter, outline: true } : {};
    runVerb<ViewOf<"lesson">>("lesson", request, () => undefined, controller.signal).then(
      (lesson) => {
        outlines.set(chapter, lesson);
        setLoaded((count) => count + 1);
      },
      (error: Error) => controller.signal.aborted || setFailure([chapter, error.message]),
    );
    return () => controller.abort();
  }, [chapter]);
  return [outlines.get(chapter), failure[0] === chapter ? failure[1] : ""];
}

function ChapterList({ lesson }: { lesson: Lesson }) {
  const answers = useAnswers();
  const done = ({ name, exercises }: ChapterEntry) => exercises.filter((one) => `${name}/${one}` in answers).length;
  const exercises = lesson.chapters.reduce((sum, one) => sum + one.exercises.length, 0);
  const answered = lesson.chapters.reduce((sum, one) => sum + done(one), 0);
  return (
    <div class="learn">
      <header>
        <h1>Learn</h1>
        <p class="lead">
          {lesson.summary} Each chapter has live views, the lecture's numbers beside ours, exercises and the code.
        </p>
        <p class="muted">
          {answered} of {exercises} exercises answered.
        </p>
      </header>
      <ol class="chapter-list">
        {lesson.chapters.map((entry, number) => (
          <li key={entry.name}>
            <a href={formatRoute({ view: "learn", parameters: { chapter: entry.name } })}>
              <span class="number" aria-hidden="true">
                {number + 1}
              </span>
              <span class="what">
                <strong>{entry.title}</strong>
                <span>{entry.summary}</span>
                {entry.exercises.length > 0 && (
                  <span class="muted">
                    {done(entry)} of {plural(entry.exercises.length, "exercise")} answered
                  </span>
                )}
              </span>
            </a>
            <progress
              value={done(entry)}
              max={entry.exercises.length || 1}
              aria-label={`Exercises answered in ${entry.title}`}
            />
          </li>
        ))}
      </ol>
    </div>
  );
}

/** Links to the chapters before and after. */
function Neighbors({ lesson }: { lesson: Lesson }) {
  const { parameters } = currentRoute.use();
  if (parameters["present"] === "1") return null;
  const at = lesson.number! - 1;
  const link = (entry: ChapterEntry | undefined, side: string) =>
    entry && (
      <a class={side} href={formatRoute({ view: "learn", parameters: { chapter: entry.name } })}>
        <span class="muted">{side === "previous" ? "Previous chapter" : "Next chapter"}</span>
        <strong>{entry.title}</strong>
      </a>
    );
  return (
    <nav class="neighbors" aria-label="Chapters">
      {link(lesson.chapters[at - 1], "previous")}
      <a class="all" href="#learn">
        All chapters
      </a>
      {link(lesson.chapters[at + 1], "next")}
    </nav>
  );
}

export const learn: Page = { name: "learn", title: "Learn", Show };
