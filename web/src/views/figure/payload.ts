// Figure 1 as the library sends it, and what is chosen of it. Knows names and numbers, no drawing.
import type { Route } from "../../route";
import { integerParameter } from "../../route";
import type { Payload } from "../../view";
import { bytes, halves } from "../attention/payload";

export type Part = "encoder" | "decoder";
export type Role = "flow" | "residual" | "memory" | "positions";

export interface Shape {
  readonly box: string;
  readonly kind: string;
  readonly lines: readonly string[];
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly shapes: readonly Shape[];
  readonly lines: readonly { readonly points: readonly number[]; readonly role: Role; readonly arrow: boolean }[];
  readonly marks: readonly { readonly x: number; readonly y: number; readonly text: string }[];
  readonly frames: readonly { readonly part: Part; readonly x: number; readonly y: number; readonly width: number; readonly height: number }[];
}

export interface Tensor {
  readonly shape: readonly number[];
  readonly rows: Part | null;
  readonly columns: Part | null;
  readonly data: string | null;
  readonly values: readonly number[] | null;
  readonly words: readonly (readonly (readonly [string, number])[])[] | null;
}

export interface Step {
  readonly tensors: readonly (readonly [string, number])[];
  readonly parameters: Readonly<Record<string, readonly number[]>>;
  readonly difference: number;
}

export interface Box {
  readonly part: Part;
  readonly group: "in" | "layer" | "out";
  readonly kind: string;
  readonly title: string;
  readonly about: string;
  readonly code: string;
  readonly steps: readonly Step[];
}

export interface Asked {
  readonly token: string | null;
  readonly probability: number | null;
  readonly best: readonly (readonly [string, number])[];
}

export interface Outcome {
  readonly without: readonly string[];
  readonly loss: number | null;
  readonly sentences_loss: number | null;
  readonly output: string;
  readonly predictions: readonly Asked[];
}

export interface FigurePayload extends Payload {
  readonly model: { readonly name: string; readonly family: string; readonly depth: number; readonly heads: number; readonly width: number; readonly norm_first: boolean };
  readonly text: string;
  readonly target: string | null;
  readonly given: string;
  readonly without: readonly string[];
  readonly components: readonly { readonly name: string; readonly title: string; readonly removed: boolean; readonly disabled: string | null }[];
  readonly tokens: Readonly<Partial<Record<Part, readonly string[]>>>;
  readonly layout: Layout;
  readonly boxes: Readonly<Record<string, Box>>;
  readonly tensors: readonly Tensor[];
  readonly ablation: {
    readonly measure: string;
    readonly outcomes: readonly Outcome[];
    readonly sentences: readonly (readonly [string, string | null])[];
    readonly remarks: readonly string[];
  };
  readonly positions: { readonly arrangement: string | null; readonly shape: readonly [number, number]; readonly data: string | null } | null;
  readonly notes: readonly string[];
  /** Whether there is a studio that can run the model again. */
  readonly studio?: boolean;
}

export interface Choice {
  readonly mode: "figure" | "positions";
  readonly name: string;
  readonly box: Box;
  readonly layer: number;
  readonly step: Step;
  /** The tensor that is shown, and its name in the code. */
  readonly called: string;
  readonly tensor: Tensor;
  readonly head: number;
}

export function choiceOf(payload: FigurePayload, { parameters }: Route): Choice {
  const names = Object.keys(payload.boxes);
  const asked = parameters["box"] ?? "";
  const name = asked in payload.boxes ? asked : (names.find((one) => payload.boxes[one]!.kind === "attention") ?? names[0]!);
  const box = payload.boxes[name]!;
  const layer = integerParameter(parameters, "layer", payload.model.depth);
  const step = box.steps[Math.min(layer, box.steps.length - 1)]!;
  const usual = box.kind === "attention" ? "weights" : "out";
  const found = step.tensors.find(([one]) => one === parameters["tensor"]) ?? step.tensors.find(([one]) => one === usual) ?? step.tensors.at(-1)!;
  const tensor = payload.tensors[found[1]]!;
  return {
    mode: parameters["mode"] === "positions" ? "positions" : "figure",
    name,
    box,
    layer,
    step,
    called: found[0],
    tensor,
    head: tensor.shape.length === 3 ? integerParameter(parameters, "head", tensor.shape[0]!) : 0,
  };
}

/** A matrix of numbers with names for its rows, and for its columns where these are tokens. */
export interface Matrix {
  readonly values: Float32Array;
  readonly across: number;
  readonly rows: readonly string[];
  readonly columns: readonly string[] | null;
}

const decoded = new WeakMap<Tensor, Float32Array>();

export function matrixOf(payload: FigurePayload, tensor: Tensor, head: number): Matrix {
  let all = decoded.get(tensor);
  if (!all) {
    all = tensor.data === null ? Float32Array.from(tensor.values ?? []) : halves(bytes(tensor.data));
    decoded.set(tensor, all);
  }
  const across = tensor.shape.length === 1 ? 1 : tensor.shape.at(-1)!;
  const down = tensor.shape.length === 1 ? tensor.shape[0]! : tensor.shape.at(-2)!;
  const size = across * down;
  return {
    values: all.subarray(head * size, (head + 1) * size),
    across,
    rows: (tensor.rows && payload.tokens[tensor.rows]) || Array.from({ length: down }, (_, row) => String(row)),
    columns: (tensor.columns && payload.tokens[tensor.columns]) || null,
  };
}

/** A token as it is shown: a space is seen. */
export const seen = (token: string) => token.replace(/\s+/g, "␣");

/** A number as it is shown: four figures, and what JSON and letters call infinity. */
export function figures(value: number): string {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 || Math.abs(value) < 0.001 ? value.toExponential(2) : value.toFixed(3);
}

export const by = (shape: readonly number[]) => shape.join(" × ");
