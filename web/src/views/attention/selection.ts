// What the route selects in the attention view; and the maps, decoded once per payload.
import { integerParameter, type Route, setParameters } from "../../route";
import { AttentionMaps, type AttentionPayload, type Axis, type Level, type MapOptions, type Segments, type Source } from "./maps";

export type Mode = "lines" | "grid" | "neuron" | "image";

export interface Focus {
  readonly side: "row" | "column";
  /** Index among the tokens shown. */
  readonly index: number;
}

export interface Selection extends MapOptions {
  readonly maps: AttentionMaps;
  readonly mode: Mode;
  readonly map: number;
  readonly layer: number;
  /** At least one head. */
  readonly heads: readonly number[];
  readonly rows: Axis;
  readonly columns: Axis;
  readonly locked: Focus | null;
  /** The image in image mode. */
  readonly image: PatchImage | null;
}

export interface PatchImage {
  readonly source: string;
  /** Rows and columns of patches. */
  readonly grid: readonly [number, number];
}

const decoded = new WeakMap<object, AttentionMaps>();

function decodeMaps(payload: AttentionPayload, index: number): AttentionMaps {
  const raw = payload.maps[index]!;
  const maps = decoded.get(raw) ?? new AttentionMaps(raw);
  decoded.set(raw, maps);
  return maps;
}

export function selectionOf(payload: AttentionPayload, { parameters }: Route): Selection {
  const map = integerParameter(parameters, "map", payload.maps.length);
  const maps = decodeMaps(payload, map);
  const mode = oneOf<Mode>(parameters["mode"], availableModes(payload, maps));
  const source = mode === "neuron" ? "heads" : oneOf<Source>(parameters["source"], maps.sources);
  const level = mode === "neuron" || !maps.hasWords ? "piece" : oneOf<Level>(parameters["level"], ["piece", "word"]);
  const pair = maps.paired ? oneOf<Segments>(parameters["pair"], ["all", "aa", "ab", "ba", "bb"]) : "all";
  const options = { source, level, pair };
  const [rows, columns] = [maps.rows(options), maps.columns(options)];
  const layer = integerParameter(parameters, "layer", maps.layers);
  const heads = source === "heads" ? parseHeads(parameters["heads"], maps.heads) : [0];
  const locked = parseLock(parameters["lock"], rows, columns);
  return { ...options, maps, mode, map, layer, heads, rows, columns, locked, image: mode === "image" ? imageOf(payload) : null };
}

function imageOf({ image, grid, maps }: AttentionPayload): PatchImage | null {
  const side = Math.floor(Math.sqrt(maps[0]!.columns.length));
  return image ? { source: image, grid: grid ?? [side, side] } : null;
}

export function availableModes(payload: AttentionPayload, maps: AttentionMaps): readonly Mode[] {
  return [...(payload.image && maps.raw.kind === "vit" ? (["image"] as const) : []), "lines", "grid", ...(maps.hasVectors ? (["neuron"] as const) : [])];
}

/** Locked tokens are stored by their first piece, so that a change of level or segments does not move the lock. */
export function setLock(focus: Focus | null, selection: Selection): void {
  const token = focus && selection[focus.side === "row" ? "rows" : "columns"].tokens[focus.index]?.[0];
  setParameters({ lock: focus && token !== null && token !== undefined ? `${focus.side === "row" ? "r" : "c"}${token}` : "" });
}

function parseLock(text: string | undefined, rows: Axis, columns: Axis): Focus | null {
  const token = Number.parseInt(text?.slice(1) ?? "", 10);
  if (!text || Number.isNaN(token)) return null;
  const side = text[0] === "c" ? "column" : "row";
  const index = (side === "row" ? rows : columns).tokens.findIndex((group) => group.includes(token));
  return index < 0 ? null : { side, index };
}

function parseHeads(text: string | undefined, count: number): readonly number[] {
  if (text === "all") return Array.from({ length: count }, (_, head) => head);
  const heads = (text ?? "0").split(",").map(Number).filter((head) => Number.isInteger(head) && head >= 0 && head < count);
  return heads.length ? [...new Set(heads)].sort((a, b) => a - b) : [0];
}

function oneOf<T extends string>(value: string | undefined, choices: readonly T[]): T {
  return choices.find((choice) => choice === value) ?? choices[0]!;
}
