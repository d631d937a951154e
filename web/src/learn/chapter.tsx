// A chapter: its parts below each other, or one at a time for a lecture. The same in the studio and in an exported
// file.
import { useEffect, useMemo } from "preact/hooks";
import { currentRoute, formatRoute, setParameters } from "../route";
import type { Lesson, ReadingEntry } from "../types";
import type { Loader } from "./content";
import "./learn.css";
import { ShowPart } from "./parts";
import { Presentation } from "./presentation";

interface Props {
  readonly lesson: Lesson;
  /** Null in an exported file. */
  readonly load: Loader;
  /** Whether the page around the chapter shows its title. */
  readonly titled?: boolean;
}

export function Chapter({ lesson, load, titled = false }: Props) {
  const { parameters } = currentRoute.use();
  const target = parameters["part"];
  useEffect(() => {
    if (target) document.getElementById(`part-${target}`)?.scrollIntoView();
  }, [lesson.chapter, target]);
  if (parameters["present"] === "1") return <Presentation lesson={lesson} load={load} />;
  return (
    <article class="chapter">
      <header>
        <p class="muted">
          Chapter {lesson.number} of {lesson.chapters.length}
        </p>
        {!titled && <h1>{lesson.title}</h1>}
        <p class="lead">{lesson.summary}</p>
        <p class="actions">
          <button type="button" onClick={() => setParameters({ present: "1", step: "", part: "" })}>
            Present
          </button>
        </p>
      </header>
      <Contents lesson={lesson} />
      <div class="parts">
        {lesson.parts.map((part) => (
          <ShowPart key={`${lesson.chapter}/${part.name}`} lesson={lesson} part={part} load={load} />
        ))}
        <Reading entries={lesson.reading} />
      </div>
    </article>
  );
}

/** Links to the headings. */
function Contents({ lesson }: { lesson: Lesson }) {
  const { view, parameters } = currentRoute.use();
  const headings = useMemo(
    () =>
      lesson.parts.flatMap((part) =>
        part.kind === "prose" && part.heading ? [[part.name, part.heading] as const] : [],
      ),
    [lesson],
  );
  if (headings.length < 2) return null;
  return (
    <nav class="contents" aria-label="Contents of the chapter">
      <ol>
        {headings.map(([name, heading]) => (
          <li key={name}>
            <a href={formatRoute({ view, parameters: { ...parameters, part: name } })}>{heading}</a>
          </li>
        ))}
      </ol>
    </nav>
  );
}

/** Papers by name and arXiv number; nothing is fetched. */
export function Reading({ entries }: { entries: readonly ReadingEntry[] }) {
  if (!entries.length) return null;
  return (
    <section class="part reading-part" aria-label="Reading">
      <h2>Reading</h2>
      <ul>
        {entries.map((entry) => (
          <li key={entry.title}>
            {entry.authors} ({entry.year}). <cite>{entry.title}</cite>.{" "}
            <span class="muted">{entry.arxiv ? `arXiv:${entry.arxiv}` : entry.venue}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
