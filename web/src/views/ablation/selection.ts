// The payload of the ablation view, and what the route selects: heads and layers to remove (as 3.1,4.*) and a position.
import { inStudio } from "../../api";
import { percent, range } from "../../format";
import { integerParameter, setParameters, type Route } from "../../route";
import type { AblationEffect, HeadEffect, HeadSweep, OutputChange } from "../../types";
import type { ViewOf } from "../../view";

export type AblationPayload = ViewOf<"ablate"> & { readonly sweep: HeadSweep };

export interface Removed {
  /** Names such as 3.1. */
  readonly heads: ReadonlySet<string>;
  readonly layers: ReadonlySet<number>;
}

/** What is removed: in the studio by the route, which is ahead of the result; in an exported page by the payload. */
export function removedAt(payload: AblationPayload, { parameters }: Route): Removed {
  if (!inStudio() || !("text" in parameters)) {
    return { heads: new Set(payload.heads.map(([layer, head]) => `${layer}.${head}`)), layers: new Set(payload.layers) };
  }
  const { num_layers: depth, num_heads: heads } = payload.model;
  const removed = new Set<string>();
  for (const name of (parameters["heads"] ?? "").split(",")) {
    const [layer, head] = name.trim().split(".");
    if (!layer || !head) continue;
    for (const i of layer === "*" ? range(depth) : [Number(layer)]) for (const j of head === "*" ? range(heads) : [Number(head)]) removed.add(`${i}.${j}`);
  }
  const layers = (parameters["layers"] ?? "").split(",").filter((name) => name.trim());
  return { heads: removed, layers: new Set(layers.map(Number)) };
}

/** Removes heads, or restores them if all of them are removed. */
export function toggleHeads(payload: AblationPayload, removed: Removed, names: readonly string[]): void {
  const heads = new Set(removed.heads);
  const restore = names.every((name) => heads.has(name));
  for (const name of names) restore ? heads.delete(name) : heads.add(name);
  setRemoved(payload, heads, removed.layers);
}

export function toggleLayer(payload: AblationPayload, removed: Removed, layer: number): void {
  const layers = new Set(removed.layers);
  if (!layers.delete(layer)) layers.add(layer);
  setRemoved(payload, removed.heads, layers);
}

export function setRemoved(payload: AblationPayload, heads: ReadonlySet<string>, layers: ReadonlySet<number>): void {
  // With the text: a route with some arguments must have all.
  const [text = "", second = ""] = payload.texts;
  setParameters({ text, text_b: second, heads: headNames(payload, heads), layers: [...layers].sort((a, b) => a - b).join(",") });
}

export function headNames({ model }: AblationPayload, heads: ReadonlySet<string>): string {
  return range(model.num_layers)
    .flatMap((layer) => {
      const removed = range(model.num_heads).filter((head) => heads.has(`${layer}.${head}`));
      return removed.length === model.num_heads ? [`${layer}.*`] : removed.map((head) => `${layer}.${head}`);
    })
    .join(",");
}

/** What is removed in words, or "". */
export function describeRemoved(payload: AblationPayload, { heads, layers }: Removed): string {
  return [heads.size && `heads ${headNames(payload, heads)}`, layers.size && `layers ${[...layers].join(",")}`].filter(Boolean).join(" and ");
}

/** The head whose removal alone is shown; only in an exported page, which has no server to remove others. */
export function singleHead(payload: AblationPayload, { parameters }: Route): HeadEffect | undefined {
  if (inStudio()) return undefined;
  return payload.sweep.ranked.find((head) => `${head.layer}.${head.head}` === parameters["alone"]);
}

export function isIntact(payload: AblationPayload, route: Route): boolean {
  return !payload.heads.length && !payload.layers.length && !singleHead(payload, route);
}

/** What is shown at one position; without `effect` if one head alone is removed. */
export interface ShownEffect {
  readonly target: string;
  readonly before: string;
  readonly after: string;
  readonly strength: number;
  readonly effect: AblationEffect | undefined;
}

export function shownEffects(payload: AblationPayload, route: Route): readonly (ShownEffect | undefined)[] {
  const single = singleHead(payload, route);
  return payload.effects.map((effect) => {
    const { target, before } = effect;
    if (!single) return { target, before, after: effect.after, strength: effect.strength, effect };
    const at = payload.sweep.targets.indexOf(target);
    return at < 0 ? undefined : { target, before, after: single.after[at] ?? "", strength: single.strengths[at] ?? 0, effect: undefined };
  });
}

/** The position shown in full: by default the one that changed most. */
export function selectedPosition(payload: AblationPayload, route: Route): number {
  const strengths = shownEffects(payload, route).map((one) => one?.strength ?? -1);
  return integerParameter(route.parameters, "place", payload.effects.length, Math.max(0, strengths.indexOf(Math.max(...strengths))));
}

const FULL = 2; // nats with the full color

export const unit = ({ sweep }: AblationPayload) => (sweep.measure === "divergence" ? "nats" : "change");

export function strongest({ sweep }: AblationPayload): number {
  return Math.max(...sweep.ranked.map((head) => head.strength), 1e-12);
}

/** The strength with the full color in the text. */
export function fullStrength(payload: AblationPayload): number {
  return payload.sweep.measure === "divergence" ? FULL : Math.max(strongest(payload), ...payload.effects.map((effect) => effect.strength));
}

/** Color from 0 to 1 of an effect in the text: small ones stay visible, and two ablations are comparable. */
export const textColor = (payload: AblationPayload, strength: number) => Math.min(1, Math.sqrt(strength / fullStrength(payload)));

/** Color from 0 to 1 of a head, relative to the strongest one. */
export const headColor = (payload: AblationPayload, strength: number) => Math.sqrt(strength / strongest(payload));

export function formatOutput(payload: AblationPayload, value: number): string {
  return payload.model.problem_type === "regression" ? (Number(value.toFixed(3)) || 0).toFixed(3) : percent(value); // no −0.000
}

export function formatStrength(value: number): string {
  return value === 0 ? "0" : value < 0.001 ? value.toExponential(1) : value.toFixed(3);
}

/** The probabilities of an output before and after, if they are known. */
export function changeOf(effect: AblationEffect | undefined, output: string): OutputChange | undefined {
  return effect && [...effect.likeliest, ...effect.successors].find((change) => change.output === output);
}
