// Generation: a model continues a prompt, token by token, with the alternatives at every position.
import { useState } from "preact/hooks";
import { request } from "../api";
import { ErrorMessage, ModelLinks } from "../components";
import { currentRoute, navigate, setParameters } from "../route";
import type { Field, View } from "../view";
import { Column } from "./generation/column";
import { drawing, table } from "./generation/export";
import { GenerationForm } from "./generation/form";
import "./generation/generation.css";
import { argumentsOf, type Generation, type Run, SETTINGS } from "./generation/payload";
import { useStream } from "./generation/stream";

const NAME = "generation";

function Show({ payload }: { payload: Generation }) {
  return (
    <div class="generation">
      {payload.runs.length ? <Texts payload={payload} /> : <NoModel payload={payload} />}
      <p class="generation-caveat">{payload.caveat}</p>
    </div>
  );
}

function Texts({ payload }: { payload: Generation }) {
  const { studio, prompt } = payload;
  const { stream, stop, restart } = useStream(payload);
  const [error, setError] = useState("");
  const running = stream.state === "running";
  const run = (args: Readonly<Record<string, string>>) => {
    setError("");
    if (isEqual(args, argumentsOf(payload))) return restart();
    stop();
    navigate({ view: NAME, parameters: args }, { push: true });
  };
  // A stopped text is the complete result of a request for fewer tokens, which becomes the route.
  const halt = () => {
    const counts = stop();
    const changes = counts.flatMap((count, number) => (count ? [[number ? "b_tokens" : "tokens", String(count)] as const] : []));
    // A second text that had finished keeps its length when the first is stopped.
    const finished = counts.length > 1 && !counts[1] ? { b_tokens: String(payload.runs[1]!.settings.max_tokens) } : {};
    if (counts.some((count) => count)) setParameters({ ...argumentsOf(payload), ...finished, ...Object.fromEntries(changes) });
  };
  const branch = (from: Run, ids: readonly number[]) => {
    setError("");
    request<{ prompt: string }>("branch", { model: from.model.name, prompt, ids: ids.join(" ") }).then(
      (result) => run({ ...argumentsOf(payload), prompt: result.prompt }),
      (problem: Error) => setError(problem.message),
    );
  };
  return (
    <>
      {studio && <GenerationForm key={formKey(payload)} payload={payload} studio={studio} running={running} run={run} stop={halt} />}
      <ErrorMessage text={stream.error || error} />
      <div class={stream.runs.length > 1 ? "generation-columns" : "generation-alone"}>
        {stream.runs.map((one, number) => (
          <Column key={number} prompt={prompt} run={one} running={running} {...(studio && { branch })} />
        ))}
      </div>
    </>
  );
}

function isEqual(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const sorted = (args: Readonly<Record<string, string>>) => JSON.stringify(Object.entries(args).sort());
  return sorted(one) === sorted(other);
}

/** The form is reset when another request is made; a stopped text belongs to the same request. */
function formKey(payload: Generation): string {
  const { tokens: _, b_tokens: __, ...rest } = argumentsOf(payload);
  return JSON.stringify(rest);
}

function NoModel({ payload: { note, studio } }: { payload: Generation }) {
  const { parameters } = currentRoute.use();
  return (
    <>
      <p>{note}</p>
      {studio?.writers.length ? (
        <p>
          Models that generate text: <ModelLinks names={studio.writers} view={NAME} parameters={parameters} />
        </p>
      ) : (
        <p>
          None of the studio's models generates text. Start the studio with a GPT or a T5, <code>regard studio --model DIR</code>, or train one first:{" "}
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
  about: "Continue a prompt and see, token by token, what the model could have written instead.",
  model: true,
  kinds: ["writer"],
  ownForm: true,
  submitLabel: "Run",
  fields: [
    { name: "prompt", label: "Prompt", lines: 3, start: "This is a story about me and my brothers" },
    ...[...SETTINGS, "second", "b_model", ...SETTINGS.map((name) => `b_${name}`)].map(setting),
  ],
  Show,
  drawing,
  table,
};
