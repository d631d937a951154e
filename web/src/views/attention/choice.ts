// What the user has chosen in the attention view, read from the address; and the maps, decoded once a payload.
import { setParameters, integerParameter, type Route } from "../../route";
import { Maps, type Level, type Pair, type Side, type Source, type Wanted } from "./maps";
import type { AttentionPayload } from "./payload";

export type Mode = "lines" | "grid" | "neuron" | "image";

export interface Focus {
  readonly side: "row" | "column";
  /** Its line among those shown. */
  readonly index: number;
}

export interface Choice extends Wanted {
  readonly maps: Maps;
  readonly mode: Mode;
  readonly map: number;
  readonly layer: number;
  /** Numbers of the heads that are shown, never none. */
  readonly heads: readonly number[];
  readonly rows: Side;
  readonly columns: Side;
  readonly locked: Focus | null;
}

const decoded = new WeakMap<object, Maps>();

export function mapsOf(payload: AttentionPayload, number: number): Maps {
  const raw = payload.maps[number]!;
  const found = decoded.get(raw) ?? new Maps(raw);
  decoded.set(raw, found);
  return found;
}

export function choiceOf(payload: AttentionPayload, { parameters }: Route): Choice {
  const map = integerParameter(parameters, "map", payload.maps.length);
  const maps = mapsOf(payload, map);
  const modes: readonly Mode[] = modesOf(payload, maps);
  const mode = among(parameters["mode"], modes);
  const source = mode === "neuron" ? "heads" : among<Source>(parameters["source"], maps.sources);
  const level = mode === "neuron" || !maps.words ? "piece" : among<Level>(parameters["level"], ["piece", "word"]);
  const pair = maps.paired ? among<Pair>(parameters["pair"], ["all", "aa", "ab", "ba", "bb"]) : "all";
  const wanted = { source, level, pair };
  const rows = maps.rows(wanted);
  const columns = maps.columns(wanted);
  const layer = integerParameter(parameters, "layer", maps.layers);
  const heads = headsOf(source === "heads" ? parameters["heads"] : "0", source === "heads" ? maps.heads : 1);
  return { ...wanted, maps, mode, map, layer, heads, rows, columns, locked: lockOf(parameters["lock"], rows, columns) };
}

export function modesOf(payload: AttentionPayload, maps: Maps): readonly Mode[] {
  const pictured = payload.image && maps.raw.kind === "vit";
  return [...(pictured ? (["image"] as const) : []), "lines", "grid", ...(maps.explained ? (["neuron"] as const) : [])];
}

/** Locked tokens are kept by their first piece, so that a change of level or pair does not move the lock. */
export function lock(focus: Focus | null, choice: Choice): void {
  if (!focus) return setParameters({ lock: "" });
  const token = choice[focus.side === "row" ? "rows" : "columns"].tokens[focus.index]?.[0];
  setParameters({ lock: token === undefined ? "" : `${focus.side === "row" ? "r" : "c"}${token}` });
}

export function chooseHead(layer: number, head: number): void {
  setParameters({ layer: String(layer), heads: String(head) });
}

function lockOf(text: string | undefined, rows: Side, columns: Side): Focus | null {
  const token = Number.parseInt(text?.slice(1) ?? "", 10);
  if (!text || Number.isNaN(token)) return null;
  const side = text[0] === "c" ? "column" : "row";
  const index = (side === "row" ? rows : columns).tokens.findIndex((group) => group.includes(token));
  return index < 0 ? null : { side, index };
}

function headsOf(text: string | undefined, count: number): readonly number[] {
  if (text === "all") return Array.from({ length: count }, (_, head) => head);
  const found = (text ?? "0").split(",").map(Number).filter((head) => Number.isInteger(head) && head >= 0 && head < count);
  return found.length ? [...new Set(found)].sort((a, b) => a - b) : [0];
}

function among<T extends string>(value: string | undefined, choices: readonly T[]): T {
  return choices.find((choice) => choice === value) ?? choices[0]!;
}
