// Requests to the studio's server.
import { store } from "./store";
import type { Payload } from "./view";

export type Kind = "reader" | "writer" | "translator" | "tuned" | "unknown";

export interface Model {
  readonly name: string;
  /** What the model can do; "unknown" for a hub model that is not loaded yet. */
  readonly kind: Kind;
  readonly state: "loading" | "ready" | "failed";
  readonly error: string;
  /** Whether the model takes images instead of text. */
  readonly sees: boolean;
}

/** Incremented when the studio's list of models changes, for example after a training run. */
export const modelsChanged = store(0);

/** Identifies this browser tab, so that the server can schedule tabs fairly. */
const TAB = Math.random().toString(36).slice(2);

export async function fetchModels(): Promise<readonly Model[]> {
  return ((await readJson(fetch("api/models"))) as { models: Model[] }).models;
}

export async function request<T = Payload>(name: string, args: object, signal: AbortSignal | null = null): Promise<T> {
  return (await readJson(post(`api/${name}`, args, signal))) as T;
}

/** Uploads an image; returns the name by which requests refer to it. */
export async function uploadImage(file: File): Promise<string> {
  const content = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve((reader.result as string).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
  return (await request<{ image: string }>("picture", { name: file.name, content })).image;
}

/** The self-contained HTML page of a view. */
export async function exportPage(view: string, args: object): Promise<string> {
  return readText(post(`api/${view}/page`, args));
}

export function post(address: string, args: object, signal: AbortSignal | null = null): Promise<Response> {
  const headers = { "Content-Type": "application/json", "X-Regard-Tab": TAB };
  return fetch(address, { method: "POST", headers, body: JSON.stringify(args), signal });
}

async function readJson(pending: Promise<Response>): Promise<unknown> {
  return JSON.parse(await readText(pending));
}

async function readText(pending: Promise<Response>): Promise<string> {
  let response: Response;
  try {
    response = await pending;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Error("The studio does not answer. Is `regard studio` still running?");
  }
  const text = await response.text();
  if (response.ok) return text;
  throw new Error(errorMessage(text) || `the studio answered ${response.status}`);
}

/** The message of an error response; the text itself if it does not come from the studio. */
export function errorMessage(text: string): string {
  try {
    return (JSON.parse(text) as { error?: string }).error ?? text;
  } catch {
    return text;
  }
}
