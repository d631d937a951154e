// Requests to the studio's server, and what the page knows of its models.
import { store } from "./store";
import type {
  BranchPrompt,
  GeneratedTokens,
  GenerationStarted,
  ImageKey,
  ModelState,
  Note,
  Progress,
  TextPiece,
  TrainingOptions,
} from "./types";
import type { Payload } from "./view";

export type Capability = NonNullable<ModelState["capabilities"]>[number];

/** What a verb reports while it runs. */
export type VerbEvent = Note | Progress | GenerationStarted | GeneratedTokens | TextPiece;

/** What only the page does, beside the verbs. */
interface Actions {
  readonly image: ImageKey;
  readonly branch: BranchPrompt;
  readonly train: TrainingOptions;
  readonly training: TrainingOptions;
  readonly "cancel-training": TrainingOptions;
}

/** The studio's models; null in an exported file, which has no server. */
export const studioModels = store<readonly ModelState[] | null>(null);

export const inStudio = () => studioModels.get() !== null;

/** Whether a model can do something; a model of the hub might, until it is loaded. */
export const can = ({ capabilities }: ModelState, capability: Capability) => capabilities?.includes(capability) ?? true;

/** The names of the studio's models that can do something. */
export const modelsThatCan = (capability: Capability) =>
  (studioModels.get() ?? []).filter((model) => can(model, capability)).map((model) => model.name);

const DISCONNECTED = "The studio does not answer. Is `regard studio` still running?";

/** Identifies this browser tab, so that the server can schedule tabs fairly. */
const TAB = Math.random().toString(36).slice(2);

export async function refreshModels(): Promise<void> {
  studioModels.set(((await (await answered(fetch("api/models"))).json()) as { models: ModelState[] }).models);
}

export async function act<Name extends keyof Actions>(name: Name, args: object): Promise<Actions[Name]> {
  return (await (await post(`api/${name}`, args)).json()) as Actions[Name];
}

/** Uploads an image; returns the name by which requests refer to it. */
export async function uploadImage(file: File): Promise<string> {
  const content = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve((reader.result as string).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
  return (await act("image", { name: file.name, content })).image;
}

/** Results by verb and request, the last used at the end: the same request is not sent twice. */
const results = new Map<string, { readonly view: Payload; readonly size: number }>();
const MAX_KEPT = 60_000_000; // characters of JSON

/** Empty values are those of the request's defaults, so they do not count. */
const keyOf = (verb: string, request: object) =>
  `${verb} ${JSON.stringify(
    Object.entries(request)
      .filter(([, value]) => value !== "")
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  )}`;

function keep(key: string, view: Payload, size: number): void {
  results.delete(key);
  results.set(key, { view, size });
  let total = 0;
  for (const one of results.values()) total += one.size;
  for (const [oldest, one] of results) {
    if (total <= MAX_KEPT || oldest === key) break;
    total -= one.size;
    results.delete(oldest);
  }
}

/** Runs a verb: calls `onEvent` with what it reports, and returns the data of its view; at once if it is known. */
export async function runVerb<P extends Payload>(
  verb: string,
  request: object,
  onEvent: (event: VerbEvent) => void,
  signal: AbortSignal,
): Promise<P> {
  const key = keyOf(verb, request);
  const known = results.get(key);
  if (known) {
    keep(key, known.view, known.size);
    return known.view as P;
  }
  const response = await post(`v1/${verb}/events`, request, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let line = "";
  for (;;) {
    const { done, value } = await reader
      .read()
      .catch((error: Error) => Promise.reject(signal.aborted ? error : new Error(DISCONNECTED)));
    if (done) throw new Error(DISCONNECTED);
    const lines = value.split("\n");
    lines[0] = line + lines[0];
    line = lines.pop()!;
    for (const one of lines) {
      const event = JSON.parse(one) as VerbEvent | { type: "result"; view: P } | { type: "error"; error: string };
      if ("error" in event) throw new Error(event.error);
      if (event.type === "result") {
        keep(key, event.view, one.length);
        return event.view;
      }
      onEvent(event);
    }
  }
}

function post(address: string, args: object, signal: AbortSignal | null = null): Promise<Response> {
  const headers = { "Content-Type": "application/json", "X-Regard-Tab": TAB };
  return answered(fetch(address, { method: "POST", headers, body: JSON.stringify(args), signal }));
}

/** The response, if it is not an error. */
async function answered(pending: Promise<Response>): Promise<Response> {
  let response: Response;
  try {
    response = await pending;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Error(DISCONNECTED);
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    message = (JSON.parse(text) as { error?: string }).error ?? text;
  } catch {
    // not an error of the studio
  }
  throw new Error(message || `the studio answered ${response.status}`);
}
