// Which heads and layers are out, as the address and the command line name them: 3.1,4.*. Draws nothing.
import { setParameters, type Route } from "../../route";
import type { Ablation } from "./payload";

export interface Gone {
  readonly heads: ReadonlySet<string>;
  readonly layers: ReadonlySet<number>;
}

/** In the studio what the address says, which is ahead of the answer; in an exported page what was asked. */
export function goneAt(payload: Ablation, { parameters }: Route): Gone {
  if (!payload.studio || !("text" in parameters)) {
    return { heads: new Set(payload.gone.heads.map(([layer, head]) => `${layer}.${head}`)), layers: new Set(payload.gone.layers) };
  }
  const { depth, heads } = payload.model;
  const found = new Set<string>();
  for (const name of (parameters["heads"] ?? "").split(",")) {
    const [layer, head] = name.trim().split(".");
    if (!layer || !head) continue;
    for (const i of layer === "*" ? range(depth) : [Number(layer)]) for (const j of head === "*" ? range(heads) : [Number(head)]) found.add(`${i}.${j}`);
  }
  const layers = (parameters["layers"] ?? "").split(",").filter((name) => name.trim());
  return { heads: found, layers: new Set(layers.map(Number)) };
}

/** Take out a head or bring it back. */
export function toggleHead(payload: Ablation, gone: Gone, layer: number, head: number): void {
  const next = new Set(gone.heads);
  const name = `${layer}.${head}`;
  if (!next.delete(name)) next.add(name);
  put(payload, next, gone.layers);
}

/** All heads of a layer, or none where all are out. */
export function toggleHeads(payload: Ablation, gone: Gone, layer: number): void {
  const names = range(payload.model.heads).map((head) => `${layer}.${head}`);
  const all = names.every((name) => gone.heads.has(name));
  const next = new Set(gone.heads);
  for (const name of names) all ? next.delete(name) : next.add(name);
  put(payload, next, gone.layers);
}

export function toggleLayer(payload: Ablation, gone: Gone, layer: number): void {
  const next = new Set(gone.layers);
  if (!next.delete(layer)) next.add(layer);
  put(payload, gone.heads, next);
}

export function allBack(payload: Ablation): void {
  put(payload, new Set(), new Set());
}

function put(payload: Ablation, heads: ReadonlySet<string>, layers: ReadonlySet<number>): void {
  // The text goes with it: an address that names some arguments names all.
  const [text = "", second = ""] = payload.texts;
  setParameters({ text, text_b: second, heads: named(payload, heads), layers: [...layers].sort((a, b) => a - b).join(",") });
}

export function named(payload: Ablation, heads: ReadonlySet<string>): string {
  return range(payload.model.depth)
    .flatMap((layer) => {
      const out = range(payload.model.heads).filter((head) => heads.has(`${layer}.${head}`));
      return out.length === payload.model.heads ? [`${layer}.*`] : out.map((head) => `${layer}.${head}`);
    })
    .join(",");
}

export function range(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}
