// A chapter of the course as an exported file and in a notebook; the studio shows it on the Learn page.
import { Chapter } from "../learn/chapter";
import type { ComputedPart } from "../types";
import type { View, ViewOf } from "../view";
import { story } from "./story";

type LessonPayload = ViewOf<"lesson">;

/** All blocks that were computed, as a story. */
function asStory(payload: LessonPayload) {
  const computed = payload.parts.filter((part): part is ComputedPart => part.kind === "computed");
  return { ...payload, blocks: computed.flatMap((part) => part.blocks ?? []) };
}

function Show({ payload }: { payload: LessonPayload }) {
  if (payload.chapter) return <Chapter lesson={payload} load={null} titled />;
  return (
    <ol>
      {payload.chapters.map((entry) => (
        <li key={entry.name}>
          <strong>{entry.title}</strong>: {entry.summary} <code>regard lesson {entry.name}</code>
        </li>
      ))}
    </ol>
  );
}

export const lesson: View<LessonPayload> = {
  name: "lesson",
  title: "A chapter",
  about: "",
  fields: [],
  Show,
  drawing: (payload, route) => story.drawing(asStory(payload), route),
  table: (payload, route) => story.table(asStory(payload), route),
};
