// Questions to the studio's server. Knows addresses and errors, no view.
import { store } from "./store";
import type { Payload } from "./view";

export type Kind = "reader" | "writer" | "translator" | "tuned" | "unknown";

export interface Model {
  readonly name: string;
  /** What it is good for; of a hub's model unknown until it is loaded. */
  readonly kind: Kind;
  readonly state: "loading" | "ready" | "failed";
  readonly error: string;
  /** Whether it looks at pictures instead of reading. */
  readonly sees: boolean;
}

/** Incremented when the studio's list of models has changed, for example after a training. */
export const modelsChanged = store(0);

/** A name for this tab, so that the server lets tabs take turns. */
const TAB = Math.random().toString(36).slice(2);

export async function models(): Promise<readonly Model[]> {
  return (JSON.parse(await answer(fetch("api/models"))) as { models: Model[] }).models;
}

export async function ask(view: string, args: object, signal: AbortSignal): Promise<Payload> {
  return JSON.parse(await answer(post(`api/${view}`, args, signal))) as Payload;
}

/** Have the server keep a picture; what this gives names it in a question. */
export async function sendPicture(file: File): Promise<string> {
  const content = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve((reader.result as string).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
  return (JSON.parse(await answer(post("api/picture", { name: file.name, content }))) as { image: string }).image;
}

/** The self-contained page of a view, opened at this place. */
export async function exported(view: string, args: object): Promise<string> {
  return answer(post(`api/${view}/page`, args));
}

export function post(address: string, args: object, signal: AbortSignal | null = null): Promise<Response> {
  const headers = { "Content-Type": "application/json", "X-Regard-Tab": TAB };
  return fetch(address, { method: "POST", headers, body: JSON.stringify(args), signal });
}

async function answer(request: Promise<Response>): Promise<string> {
  let response: Response;
  try {
    response = await request;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Error("The studio does not answer. Is `regard studio` still running?");
  }
  const text = await response.text();
  if (response.ok) return text;
  let said = text;
  try {
    said = (JSON.parse(text) as { error?: string }).error ?? text;
  } catch {
    // not from the studio; shown as it is
  }
  throw new Error(said || `the studio answered ${response.status}`);
}
