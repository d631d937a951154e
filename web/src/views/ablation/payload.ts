// What the library says of a model without some heads, and how its numbers are written. Draws nothing.
import type { Route } from "../../route";
import type { Payload } from "../../view";

export interface Change {
  readonly output: string;
  readonly before: number;
  readonly after: number;
}

/** What became of the answer at one place; `strength` is a divergence in nats, or a value's change. */
export interface Effect {
  readonly place: string;
  readonly before: string;
  readonly after: string;
  readonly strength: number;
  readonly distance: number;
  readonly likeliest: readonly Change[];
  readonly changes: readonly Change[];
  readonly successors: readonly Change[];
}

/** One head taken out alone, at the places of the sweep. */
export interface Ranked {
  readonly layer: number;
  readonly head: number;
  readonly strength: number;
  readonly distance: number;
  readonly changed: number;
  readonly strengths: readonly number[];
  readonly after: readonly string[];
}

export interface Ablation extends Payload {
  readonly model: {
    readonly name: string;
    readonly family: string;
    readonly task: string;
    readonly kind: "one" | "several" | "value";
    readonly depth: number;
    readonly heads: number;
  };
  readonly texts: readonly string[];
  readonly tokens: readonly string[];
  readonly special: readonly boolean[];
  readonly at: string;
  readonly ways: readonly string[];
  /** The token of each place, where a place is about one; the number behind the last is what follows the text. */
  readonly spots: readonly number[];
  readonly gone: { readonly heads: readonly (readonly [number, number])[]; readonly layers: readonly number[] };
  readonly effects: readonly Effect[];
  readonly sweep: { readonly measure: string; readonly places: readonly number[]; readonly heads: readonly Ranked[] };
  /** In the studio alone: a server that can take out other heads. */
  readonly studio?: { readonly tuned: readonly string[] };
}

/** What is shown at one place: the full effect, or what is known of it where one head alone is missing. */
export interface Shown {
  readonly place: string;
  readonly before: string;
  readonly after: string;
  readonly strength: number;
  readonly effect: Effect | undefined;
}

const FULL = 2; // nats at which a colour is full

export function unit(payload: Ablation): string {
  return payload.sweep.measure === "divergence" ? "nats" : "change";
}

/** From 0 to 1: how much colour a strength on the text gets. Small ones must be seen, and two knock-outs be comparable. */
export function tint(payload: Ablation, strength: number): number {
  return Math.min(1, Math.sqrt(strength / fullest(payload)));
}

export function fullest(payload: Ablation): number {
  if (payload.sweep.measure === "divergence") return FULL;
  return Math.max(strongest(payload), ...payload.effects.map((effect) => effect.strength));
}

/** The same for a head among all heads: of these the strongest has the full colour. */
export function heat(payload: Ablation, strength: number): number {
  return Math.sqrt(strength / strongest(payload));
}

export function strongest(payload: Ablation): number {
  return Math.max(...payload.sweep.heads.map((head) => head.strength), 1e-12);
}

/** The head that an exported page shows alone, if one is chosen; it has no server to take out others. */
export function alone(payload: Ablation, { parameters }: Route): Ranked | undefined {
  if (payload.studio) return undefined;
  return payload.sweep.heads.find((head) => `${head.layer}.${head.head}` === parameters["alone"]);
}

/** Whether nothing is missing: then before and after are the same. */
export function whole(payload: Ablation, here: Route): boolean {
  return !payload.gone.heads.length && !payload.gone.layers.length && !alone(payload, here);
}

export function shownPlaces(payload: Ablation, here: Route): readonly (Shown | undefined)[] {
  const one = alone(payload, here);
  return payload.effects.map((effect, number) => {
    const { place, before } = effect;
    if (!one) return { place, before, after: effect.after, strength: effect.strength, effect };
    const at = payload.sweep.places.indexOf(number);
    return at < 0 ? undefined : { place, before, after: one.after[at] ?? "", strength: one.strengths[at] ?? 0, effect: undefined };
  });
}

export function percent(payload: Ablation, value: number): string {
  // The sign after rounding: there is no −0.000.
  if (payload.model.kind === "value") return (Number(value.toFixed(3)) || 0).toFixed(3);
  if (value < 1 && value >= 0.9995) return ">99.9%";
  if (value > 0 && value < 0.0005) return "<0.1%";
  return `${(100 * value).toFixed(1)}%`;
}

export function nats(value: number): string {
  return value === 0 ? "0" : value < 0.001 ? value.toExponential(1) : value.toFixed(3);
}

/** How probable an output is before and after, where it is told. */
export function shareOf(effect: Effect | undefined, output: string): Change | undefined {
  return effect && [...effect.likeliest, ...effect.successors].find((change) => change.output === output);
}
