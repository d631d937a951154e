// The parts of a chapter.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ErrorMessage } from "../components";
import { formatRoute } from "../route";
import type { CodePart, ComputedPart, ExercisePart, Lesson, ProsePart, ViewPart } from "../types";
import { views } from "../views";
import { Blocks } from "../views/story";
import { saveAnswer, useAnswers } from "./answers";
import { type Content, type Loader, type Part, useContent, useVisible } from "./content";
import { EmbeddedView } from "./embedded_view";

interface PartProps {
  readonly lesson: Lesson;
  readonly part: Part;
  readonly load: Loader;
  /** Keys that an embedded view does not use. */
  onKey?(key: string): void;
}

/** A part; what is computed is loaded when it comes into view, or on request if it is slow. */
export function ShowPart({ lesson, part, load, onKey }: PartProps) {
  const key = `${lesson.chapter}/${part.name}`;
  const [content, start] = useContent(key, part, load);
  const automatic = (part.kind === "computed" || part.kind === "view") && !part.slow;
  const ref = useVisible<HTMLElement>(() => automatic && start(), key);
  return (
    <section
      ref={ref}
      class={`part ${part.kind}-part`}
      id={`part-${part.name}`}
      aria-label={label(lesson, part)}
      data-state={content.state}
    >
      {part.kind === "prose" && <Prose part={part} />}
      {part.kind === "code" && <Code part={part} />}
      {part.kind === "exercise" && (
        <Exercise key={key} lesson={lesson} part={part} content={content} start={start} offline={!load} />
      )}
      {part.kind === "computed" && (
        <>
          <h3>{part.title}</h3>
          <Waiting part={part} content={content} start={start} offline={!load} />
          {content.state === "done" && (
            <div class="story">
              <Blocks blocks={(content.part as ComputedPart).blocks!} />
            </div>
          )}
        </>
      )}
      {part.kind === "view" && (
        <>
          <h3>{part.title}</h3>
          <Waiting part={part} content={content} start={start} offline={!load} />
          {content.state === "done" && <EmbeddedView part={content.part as ViewPart} {...(onKey && { onKey })} />}
          {load ? <OpenInStudio part={part} /> : <CopyLine title={part.title} code={part.command_line} />}
        </>
      )}
    </section>
  );
}

function label(lesson: Lesson, part: Part): string {
  switch (part.kind) {
    case "prose":
      return part.heading || `Text ${lesson.parts.indexOf(part) + 1}`;
    case "exercise":
      return `Exercise ${exerciseNumber(lesson, part)}`;
    case "code":
      return part.title || `Code, ${part.name}`;
    default:
      return part.title;
  }
}

const exerciseNumber = (lesson: Lesson, part: ExercisePart) =>
  lesson.parts.filter((one) => one.kind === "exercise").findIndex((one) => one.name === part.name) + 1;

/** What there is before the result: a Run button, progress, or an error with another try. */
function Waiting({
  part,
  content,
  start,
  offline,
}: {
  part: ComputedPart | ViewPart;
  content: Content;
  start(): void;
  offline: boolean;
}) {
  switch (content.state) {
    case "done":
      return null;
    case "computing":
      return (
        <p role="status" class="waiting muted">
          <span class="spinner" aria-hidden="true" /> {content.progress || "Computing …"}
        </p>
      );
    case "failed":
      return (
        <div class="waiting">
          <ErrorMessage text={content.error} />
          <button type="button" onClick={start}>
            Try again
          </button>
        </div>
      );
    default:
      if (offline)
        return (
          <p class="waiting muted">This part takes longer and was not computed when the file was written; add --run.</p>
        );
      return part.slow ? (
        <p class="waiting">
          <button type="button" class="main" onClick={start}>
            Run
          </button>{" "}
          <span class="muted">This part takes longer than the others.</span>
        </p>
      ) : (
        <p class="waiting muted">…</p>
      );
  }
}

function Prose({ part }: { part: ProsePart }) {
  return (
    <>
      {part.heading && <h2>{part.heading}</h2>}
      {part.text.split(/\n\s*\n/).map((paragraph, number) => (
        <p key={number}>{withCode(paragraph)}</p>
      ))}
    </>
  );
}

/** Text with what is between backticks as code. */
function withCode(text: string): ComponentChildren {
  return text.split("`").map((piece, number) => (number % 2 ? <code key={number}>{piece}</code> : piece));
}

function Code({ part }: { part: CodePart }) {
  return (
    <>
      {part.title && <h3>{part.title}</h3>}
      <CopyLine title={part.title || part.name} code={part.code} language={part.language} />
    </>
  );
}

function CopyLine({ title, code, language = "shell" }: { title: string; code: string; language?: string }) {
  const [text, setText] = useState("Copy");
  const copy = () =>
    navigator.clipboard.writeText(code).then(
      () => setText("Copied"),
      () => setText("Select and copy by hand"),
    );
  return (
    <div class="code-lines">
      <span class="muted">{language === "shell" ? "Command line" : "Python"}</span>
      <button type="button" aria-label={`Copy the lines of ${title}`} onClick={() => void copy()}>
        {text}
      </button>
      <pre tabIndex={0} aria-label={`Lines of ${title}`}>
        {code}
      </pre>
    </div>
  );
}

/** The view with the same arguments in the studio. */
function OpenInStudio({ part }: { part: ViewPart }) {
  const view = views.find((one) => one.verb === part.verb);
  if (!view) return null;
  const value = (one: unknown) => (Array.isArray(one) ? one.join("\n") : String(one));
  const args = Object.entries(part.arguments).map(([name, one]) => [name, value(one)]);
  return (
    <p class="open">
      <a href={formatRoute({ view: view.name, parameters: { ...Object.fromEntries(args), ...part.route } })}>
        Open in the studio: {view.title}
      </a>
    </p>
  );
}

interface ExerciseProps {
  readonly lesson: Lesson;
  readonly part: ExercisePart;
  readonly content: Content;
  readonly offline: boolean;
  start(): void;
}

/** A question with choices: the answer appears after a prediction. */
function Exercise({ lesson, part, content, offline, start }: ExerciseProps) {
  const [choice, setChoice] = useState<number | null>(null);
  const [saved, setSaved] = useState(false);
  const before = useAnswers()[`${lesson.chapter}/${part.name}`];
  const answer = choice !== null && content.state === "done" ? (content.part as ExercisePart).answer! : null;
  if (answer && !saved) {
    setSaved(true);
    saveAnswer(`${lesson.chapter}/${part.name}`, choice === answer.choice);
  }
  const predict = (number: number) => {
    setChoice(number);
    start();
  };
  const mark = (number: number) => (answer?.choice === number ? "right" : answer && number === choice ? "wrong" : "");
  const missing = offline && content.state !== "done";
  return (
    <>
      <h3>
        Exercise {exerciseNumber(lesson, part)}{" "}
        {choice === null && before !== undefined && <span class="muted">(answered before)</span>}
      </h3>
      <p>{withCode(part.question)}</p>
      <ol class="predictions" type="a">
        {part.choices.map((text, number) => (
          <li key={number}>
            <button
              type="button"
              class={mark(number)}
              aria-pressed={number === choice}
              disabled={missing || (choice !== null && number !== choice)}
              onClick={() => choice === null && predict(number)}
            >
              {text}
            </button>
          </li>
        ))}
      </ol>
      <div class="reveal" aria-live="polite">
        {missing && (
          <p class="muted">The answer takes longer and was not computed when the file was written; add --run.</p>
        )}
        {choice !== null && content.state === "computing" && (
          <p class="muted">
            <span class="spinner" aria-hidden="true" /> {content.progress || "Computing the answer …"}
          </p>
        )}
        {choice !== null && content.state === "failed" && (
          <>
            <ErrorMessage text={content.error} />
            <button type="button" onClick={start}>
              Try again
            </button>
          </>
        )}
        {answer && (
          <p>
            <strong>{answer.choice === choice ? "Right." : `Not quite: ${part.choices[answer.choice]}.`}</strong>{" "}
            {withCode(answer.explanation)}
          </p>
        )}
      </div>
      {choice !== null && answer && (
        <button
          type="button"
          class="again"
          onClick={() => {
            setChoice(null);
            setSaved(false);
          }}
        >
          Answer again
        </button>
      )}
    </>
  );
}
