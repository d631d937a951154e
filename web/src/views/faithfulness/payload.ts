// What the library says of a shown map, and how its numbers are written. Draws nothing.
import type { Payload } from "../../view";

export interface Attribution {
  readonly scores: readonly number[];
  readonly value: number;
  readonly baseline: string | null;
  readonly baseline_value: number | null;
  readonly steps: number | null;
  readonly completeness_error: number | null;
}

export interface Grounds {
  readonly place: string;
  readonly label: string;
  readonly probability: number;
  readonly token: number;
  readonly layer: number;
  readonly head: number | null;
  readonly tokens: readonly string[];
  readonly special: readonly boolean[];
  readonly weights: readonly number[];
  readonly gradient: Attribution;
  readonly integrated: Attribution;
}

export interface Check {
  readonly name: string;
  readonly value: number | null;
  readonly threshold: number;
  readonly numbers: Readonly<Record<string, number | null>>;
  readonly passed: boolean;
  readonly done: string;
  readonly means: string;
}

export interface Verdict {
  readonly verdict: "faithful" | "doubtful" | "unfaithful";
  readonly flagged: boolean;
  readonly means: string;
  readonly other: string;
  readonly special_weight: number;
  readonly needed: number;
  readonly decisive: string;
  readonly seed: number;
  readonly checks: readonly Check[];
}

/** A text that a model can be asked about, where it cannot be about the one it was given. */
export interface Example {
  readonly model: string;
  readonly text: string;
}

export interface Faithfulness extends Payload {
  readonly model: {
    readonly name: string;
    readonly family: string;
    readonly task: string;
    readonly kind: "one" | "several" | "value";
    readonly depth: number;
    readonly heads: number;
    readonly labels: readonly string[];
  } | null;
  readonly texts: readonly string[];
  readonly asked: { readonly label: string | null; readonly layer: number | null; readonly head: number | null };
  readonly grounds: Grounds | null;
  readonly verdict: Verdict | null;
  readonly notes: readonly string[];
  readonly example?: Example | null;
  /** In the studio alone. */
  readonly studio?: { readonly tuned: readonly string[] };
}

export interface Strip {
  readonly name: string;
  readonly about: string;
  /** How far the sum of the values is off, where they should have one. */
  readonly off: string | null;
  readonly values: readonly number[];
  /** What each token has of the sum of all words' sizes, below 0 where it speaks against. */
  readonly shares: readonly number[];
  readonly signed: boolean;
}

/** The three ways to say which words count, each as shares of its whole: only so can one colour mean one thing. */
export function strips(grounds: Grounds): readonly Strip[] {
  const { integrated, gradient, weights, special, tokens, token } = grounds;
  const baseline = integrated.baseline === "zero" ? "nothing" : `[${(integrated.baseline ?? "").toUpperCase()}]`;
  const shares = (values: readonly number[]) => {
    const sum = values.reduce((total, value, number) => (special[number] ? total : total + Math.abs(value)), 0);
    return values.map((value) => (sum ? value / sum : 0));
  };
  const strip = (name: string, about: string, values: readonly number[], signed: boolean, off: string | null = null): Strip => ({ name, about, off, values, signed, shares: shares(values) });
  return [
    strip(
      `Attention, layer ${grounds.layer}, ${grounds.head === null ? "mean of all heads" : `head ${grounds.head}`}`,
      `where ${tokens[token]?.trim()} looks`,
      weights,
      false,
    ),
    strip(
      "Integrated gradients",
      `what each token adds to the logit of ${grounds.label}, ${number(integrated.value)}; with ${baseline} for every word it is ${number(integrated.baseline_value ?? 0)}`,
      integrated.scores,
      true,
      Math.abs(integrated.completeness_error ?? 0).toExponential(0),
    ),
    strip("Gradient × input", "the same, were the model linear", gradient.scores, true),
  ];
}

/** The largest share of a word in any strip: it has the full colour. */
export function largest(grounds: Grounds, rows: readonly Strip[]): number {
  return Math.max(...rows.flatMap((row) => row.shares.filter((_, number) => !grounds.special[number]).map(Math.abs)), 1e-9);
}

export function said(value: number | null): string {
  return value === null ? "none" : number(value);
}

/** With its sign taken after rounding: what is 0.000 is neither above nor below zero. */
export function number(value: number, sign = false, digits = 3): string {
  const size = Math.abs(value).toFixed(digits);
  return `${Number(size) === 0 ? "" : value < 0 ? "−" : sign ? "+" : ""}${size}`;
}

export function share(probability: number): string {
  if (probability < 1 && probability >= 0.9995) return ">99.9%";
  if (probability > 0 && probability < 0.0005) return "<0.1%";
  return `${(100 * probability).toFixed(1)}%`;
}

export function passedOf(verdict: Verdict): number {
  return verdict.checks.filter((check) => check.passed).length;
}

/** What is asked about, in a few words. */
export function summary(payload: Faithfulness): string {
  const { grounds, model } = payload;
  if (!grounds || !model) return "";
  return model.kind === "value" ? `${grounds.label}: ${number(grounds.probability)}` : `${share(grounds.probability)} ${grounds.label}`;
}
