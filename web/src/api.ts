// Questions to the studio's server. Knows addresses and errors, no view.
import type { Payload } from "./view";

export interface Model {
  readonly name: string;
  readonly state: "loading" | "ready" | "failed";
  readonly error: string;
}

export async function models(): Promise<readonly Model[]> {
  return (JSON.parse(await answer(fetch("api/models"))) as { models: Model[] }).models;
}

export async function ask(view: string, args: object, signal: AbortSignal): Promise<Payload> {
  return JSON.parse(await answer(post(`api/${view}`, args, signal))) as Payload;
}

/** The self-contained page of a view, opened at this place. */
export async function exported(view: string, args: object): Promise<string> {
  return answer(post(`api/${view}/page`, args));
}

function post(address: string, args: object, signal: AbortSignal | null = null): Promise<Response> {
  const headers = { "Content-Type": "application/json" };
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
