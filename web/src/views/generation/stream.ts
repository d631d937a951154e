// Texts while they come: follows the studio's stream and keeps what has come, also for files made of it. Knows the server.
import { useEffect, useRef, useState } from "preact/hooks";
import { post } from "../../api";
import type { Trace } from "../search/trace";
import { argumentsOf, type Generation, type Reason, type Run, type Token } from "./payload";

export interface Live {
  readonly runs: readonly Run[];
  readonly state: "running" | "done" | "stopped" | "failed";
  readonly error: string;
}

interface News {
  readonly tokens?: Readonly<Record<string, readonly Token[]>>;
  readonly searched?: Readonly<Record<string, NonNullable<Run["progress"]>>>;
  readonly over?: Readonly<Record<string, { readonly reason: Reason; readonly trace: Trace | null }>>;
  readonly error?: string;
}

const DONE = { state: "done", error: "" } as const;
const STOPPED = { state: "stopped", error: "" } as const;
const GONE = { state: "failed", error: "The studio went away while the text was being written. Is `regard studio` still running?" } as const;
const shown = new WeakMap<Generation, Live>();
/** What was stopped, by the question whose whole answer it is. */
const stopped = new Map<string, Stopped>();

interface Stopped {
  /** With the lengths that they had then. */
  readonly runs: readonly Run[];
  /** Whether the texts are all there, and need not be written again. */
  readonly whole: boolean;
}

/** What has come for a payload so far; in a file all is there from the start. */
export function runsOf(payload: Generation): readonly Run[] {
  return shown.get(payload)?.runs ?? payload.runs;
}

/** Where a payload begins: in a file all is there, and what was stopped is not written again if it need not be. */
function beginning(payload: Generation): Live {
  if (!payload.studio) return { runs: payload.runs, ...DONE };
  const known = stopped.get(keyOf(payload, payload.runs));
  if (known?.whole) return { runs: known.runs, ...STOPPED };
  const runs = payload.runs.map((run, number) => (known?.runs[number]?.stopped ? { ...run, stopped: true } : run));
  return { runs, state: "running", error: "" };
}

export interface Following {
  readonly live: Live;
  /** End the stream; how many tokens each run has then, or null where it had come to its end. */
  stop(): readonly (number | null)[];
  again(): void;
}

export function useLive(payload: Generation): Following {
  const [, redraw] = useState(0);
  const [turn, setTurn] = useState(0);
  const stream = useRef<AbortController | null>(null);
  useEffect(() => {
    const set = (live: Live) => {
      shown.set(payload, live);
      redraw((count) => count + 1);
    };
    let live = beginning(payload);
    stopped.clear();
    set(live);
    if (live.state !== "running") return;
    const control = (stream.current = new AbortController());
    const take = (news: News) => set((live = told(live, news)));
    follow(argumentsOf(payload), take, control.signal).then(
      () => live.state === "running" && set({ ...live, ...(live.runs.some((run) => run.reason === "interrupted") ? GONE : DONE) }),
      (error: Error) =>
        set({ ...live, ...(control.signal.aborted ? STOPPED : error instanceof TypeError ? GONE : { state: "failed", error: error.message }) }),
    );
    return () => control.abort();
  }, [payload, turn]);
  const live = shown.get(payload) ?? beginning(payload);
  return {
    live,
    stop() {
      stream.current?.abort();
      const counts = live.runs.map((run) => (run.reason !== "interrupted" ? null : (run.progress?.step ?? run.tokens.length)));
      // A search has no text until it has ended, and a prompt that was cut is cut elsewhere for another length.
      const whole = live.runs.every((run, number) => counts[number] === null || (!run.progress && !run.cut && run.tokens.length));
      const runs = live.runs.map((run, number) => ended(run, counts[number] ?? null));
      stopped.set(keyOf(payload, runs), { runs, whole });
      return counts;
    },
    again: () => setTurn(turn + 1),
  };
}

function ended(run: Run, count: number | null): Run {
  if (!count) return run;
  return { ...run, settings: { ...run.settings, max_tokens: count }, max_tokens: count, reason: "length", stopped: true };
}

function keyOf(payload: Generation, runs: readonly Run[]): string {
  return JSON.stringify([payload.prompt, runs.map((run) => [run.model.name, Object.entries(run.settings).sort()])]);
}

function told(live: Live, news: News): Live {
  if (news.error !== undefined) return { ...live, state: "failed", error: news.error };
  const runs = live.runs.map((run, number): Run => {
    const key = String(number);
    const more = news.tokens?.[key];
    if (more) return { ...run, tokens: [...run.tokens, ...more] };
    const progress = news.searched?.[key];
    if (progress) return { ...run, progress };
    const over = news.over?.[key];
    if (!over) return run;
    const { progress: _, ...rest } = run;
    return { ...rest, ...over };
  });
  return { ...live, runs };
}

/** Read the stream's lines as they come. */
async function follow(args: object, take: (news: News) => void, signal: AbortSignal): Promise<void> {
  const response = await post("api/generation/stream", args, signal);
  if (!response.ok || !response.body) throw new Error(((await response.json()) as { error?: string }).error ?? `the studio answered ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) take(JSON.parse(line) as News);
  }
}
