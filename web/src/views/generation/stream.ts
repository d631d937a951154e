// Follows the server's stream of tokens and keeps what has arrived, also for exported files.
import { useEffect, useRef, useState } from "preact/hooks";
import { errorMessage, post } from "../../api";
import type { RunEnd, RunSearch, RunTokens } from "../../types";
import { argumentsOf, type Generation, type Run } from "./payload";

export interface StreamState {
  readonly runs: readonly Run[];
  readonly state: "running" | "done" | "stopped" | "failed";
  readonly error: string;
}

/** One line of the stream. */
type StreamEvent = RunTokens | RunSearch | RunEnd | { readonly type: "start" } | { readonly type?: undefined; readonly error: string };

const DONE = { state: "done", error: "" } as const;
const STOPPED = { state: "stopped", error: "" } as const;
const DISCONNECTED = { state: "failed", error: "The studio stopped answering while the text was being generated. Is `regard studio` still running?" } as const;
const states = new WeakMap<Generation, StreamState>();
/** Stopped texts by the request whose complete result they are; `complete` means they need not be generated again. */
const stopped = new Map<string, { readonly runs: readonly Run[]; readonly complete: boolean }>();

/** What has arrived for a payload; an exported file has everything from the start. */
export function runsOf(payload: Generation): readonly Run[] {
  return states.get(payload)?.runs ?? payload.runs;
}

/** An exported file is complete, and a stopped text is not generated again if possible. */
function initialState(payload: Generation): StreamState {
  if (!payload.studio) return { runs: payload.runs, ...DONE };
  const known = stopped.get(keyOf(payload, payload.runs));
  if (known?.complete) return { runs: known.runs, ...STOPPED };
  const runs = payload.runs.map((run, number) => (known?.runs[number]?.stopped ? { ...run, stopped: true } : run));
  return { runs, state: "running", error: "" };
}

interface Stream {
  readonly stream: StreamState;
  /** Ends the stream; returns the number of tokens of each run, or null if it had already finished. */
  stop(): readonly (number | null)[];
  restart(): void;
}

export function useStream(payload: Generation): Stream {
  const [, rerender] = useState(0);
  const [restarts, setRestarts] = useState(0);
  const controller = useRef<AbortController | null>(null);
  useEffect(() => {
    let state = initialState(payload);
    const set = (next: StreamState) => {
      state = next;
      states.set(payload, state);
      rerender((count) => count + 1);
    };
    stopped.clear();
    set(state);
    if (state.state !== "running") return;
    const control = (controller.current = new AbortController());
    follow(argumentsOf(payload), (event) => set(update(state, event)), control.signal).then(
      () => state.state === "running" && set({ ...state, ...(state.runs.some((run) => run.reason === "interrupted") ? DISCONNECTED : DONE) }),
      (error: Error) => set({ ...state, ...(control.signal.aborted ? STOPPED : error instanceof TypeError ? DISCONNECTED : { state: "failed", error: error.message }) }),
    );
    return () => control.abort();
  }, [payload, restarts]);
  const stream = states.get(payload) ?? initialState(payload);
  return {
    stream,
    stop() {
      controller.current?.abort();
      const counts = stream.runs.map((run) => (run.reason !== "interrupted" ? null : (run.progress?.step ?? run.tokens.length)));
      // A beam search has no text before its end, and a prompt that was cut is cut differently for another length.
      const complete = stream.runs.every((run, number) => counts[number] === null || (!run.progress && !run.truncated && run.tokens.length));
      const runs = stream.runs.map((run, number) => shortened(run, counts[number] ?? null));
      stopped.set(keyOf(payload, runs), { runs, complete });
      return counts;
    },
    restart: () => setRestarts(restarts + 1),
  };
}

function shortened(run: Run, count: number | null): Run {
  return count ? { ...run, settings: { ...run.settings, max_new_tokens: count }, max_new_tokens: count, reason: "length", stopped: true } : run;
}

function keyOf(payload: Generation, runs: readonly Run[]): string {
  return JSON.stringify([payload.prompt, runs.map((run) => [run.model, Object.entries(run.settings).sort()])]);
}

function update(state: StreamState, event: StreamEvent): StreamState {
  if (event.type === undefined) return { ...state, state: "failed", error: event.error };
  if (event.type === "start") return state;
  const runs = state.runs.map((run, number): Run => {
    if (number !== event.run) return run;
    if (event.type === "tokens") return { ...run, tokens: [...run.tokens, ...event.tokens] };
    if (event.type === "search") return { ...run, progress: event };
    const { progress: _, ...rest } = run;
    return { ...rest, reason: event.reason, trace: event.trace };
  });
  return { ...state, runs };
}

/** Reads the lines of the stream as they arrive. */
async function follow(args: object, onEvent: (event: StreamEvent) => void, signal: AbortSignal): Promise<void> {
  const response = await post("api/generation/stream", args, signal);
  if (!response.ok || !response.body) throw new Error(errorMessage(await response.text()) || `the studio answered ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) onEvent(JSON.parse(line) as StreamEvent);
  }
}
