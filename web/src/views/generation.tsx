// Generation: a model writes behind a prompt, token by token, with what else it might have said at every place.
import { useState } from "preact/hooks";
import { ask } from "../api";
import { setParameters, formatRoute, navigate, currentRoute } from "../route";
import type { Field, View } from "../view";
import { Column } from "./generation/column";
import { Ask } from "./generation/form";
import "./generation/generation.css";
import { useLive } from "./generation/stream";
import { argumentsOf, SETTINGS, type Generation, type Run, type Studio } from "./generation/payload";
import { drawing, table } from "./generation/export";

const NAME = "generation";

function Show({ payload }: { payload: Generation }) {
  const { studio, runs, note } = payload;
  return (
    <div class="generation">
      {runs.length ? <Written payload={payload} /> : <Nobody note={note ?? ""} {...(studio && { studio })} />}
      <p class="generation-caveat">{payload.caveat}</p>
    </div>
  );
}

function Written({ payload }: { payload: Generation }) {
  const { studio, prompt } = payload;
  const { live, stop, again } = useLive(payload);
  const [error, fail] = useState("");
  const running = live.state === "running";
  const run = (args: Readonly<Record<string, string>>) => {
    fail("");
    if (sameAs(args, argumentsOf(payload))) return again();
    stop();
    navigate({ view: NAME, parameters: args }, { step: true });
  };
  // What was stopped is the whole answer to a shorter question, which then is the one that the address asks.
  const halt = () => {
    const counts = stop();
    const changes = counts.flatMap((count, number) => (count ? [[number ? "b_tokens" : "tokens", String(count)] as const] : []));
    if (counts.some((count) => count)) setParameters({ ...argumentsOf(payload), ...untouched(counts, payload), ...Object.fromEntries(changes) });
  };
  const branch = (from: Run, ids: readonly number[]) => {
    fail("");
    ask("branch", { model: from.model.name, prompt, ids: ids.join(" ") }, new AbortController().signal).then(
      (answer) => run({ ...argumentsOf(payload), prompt: (answer as unknown as { prompt: string }).prompt }),
      (problem: Error) => fail(problem.message),
    );
  };
  const problem = live.error || error;
  return (
    <>
      {studio && <Ask key={formKey(payload)} payload={payload} studio={studio} running={running} run={run} stop={halt} />}
      {problem && (
        <p role="alert" class="error">
          {problem}
        </p>
      )}
      <div class={live.runs.length > 1 ? "generation-columns" : "generation-alone"}>
        {live.runs.map((one, number) => (
          <Column key={number} prompt={prompt} run={one} running={running} {...(studio && { branch })} />
        ))}
      </div>
    </>
  );
}

function sameAs(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const sorted = (args: Readonly<Record<string, string>>) => JSON.stringify(Object.entries(args).sort());
  return sorted(one) === sorted(other);
}

/** A second column that came to its end keeps its length when the first one is stopped. */
function untouched(counts: readonly (number | null)[], { runs }: Generation): Record<string, string> {
  return counts.length > 1 && !counts[1] ? { b_tokens: String(runs[1]!.settings.max_tokens) } : {};
}

/** The form begins anew where something else is asked; a text that was stopped is the same question. */
function formKey(payload: Generation): string {
  const { tokens: _, b_tokens: __, ...rest } = argumentsOf(payload);
  return JSON.stringify(rest);
}

function Nobody({ note, studio }: { note: string; studio?: Studio }) {
  const { parameters } = currentRoute.use();
  const first = studio?.writers[0];
  return (
    <>
      <p>{note}</p>
      {first ? (
        <p>
          Models here that write:{" "}
          {studio.writers.map((name, number) => (
            <>
              {number > 0 && ", "}
              <a key={name} href={formatRoute({ view: NAME, parameters: { ...parameters, model: name } })}>
                {name}
              </a>
            </>
          ))}
        </p>
      ) : (
        <p>
          None of the studio's models writes. Start it with a GPT or a T5, <code>regard studio --model DIR</code>, or train one first:{" "}
          <code>regard pretrain gpt --corpus FILES --output DIR</code>.
        </p>
      )}
    </>
  );
}

const setting = (name: string): Field => ({ name, label: name.replace("b_", "second ").replace("_", "-"), start: "", optional: true });

export const generation: View<Generation> = {
  name: NAME,
  title: "Generation",
  about: "Let a model write behind a prompt, and see at every token what else it might have said.",
  model: true,
  suits: ["writer"],
  form: true,
  verb: "Run",
  fields: [
    { name: "prompt", label: "Prompt", lines: 3, start: "This is a story about me and my brothers" },
    ...[...SETTINGS, "second", "b_model", ...SETTINGS.map((name) => `b_${name}`)].map(setting),
  ],
  Show,
  drawing,
  table,
};
