// The payload of the view of Figure 1, and what the route selects.
import { bytes, halves } from "../../binary";
import { integerParameter, type Route } from "../../route";
import type { Payload } from "../../view";

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
  readonly data?: string;
  readonly values?: readonly number[];
  readonly words?: readonly (readonly (readonly [string, number])[])[];
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

export interface TokenPrediction {
  readonly token: string | null;
  readonly probability: number | null;
  readonly best: readonly (readonly [string, number])[];
}

export interface Outcome {
  readonly without: readonly string[];
  readonly loss: number | null;
  readonly sentences_loss: number | null;
  readonly says: string;
  readonly places: readonly TokenPrediction[];
}

export interface FigurePayload extends Payload {
  readonly model: { readonly name: string; readonly family: string; readonly depth: number; readonly heads: number; readonly width: number; readonly norm_first: boolean };
  readonly text: string;
  readonly target: string | null;
  readonly given: string;
  readonly without: readonly string[];
  readonly switches: readonly { readonly name: string; readonly title: string; readonly off: boolean; readonly disabled: string | null }[];
  readonly tokens: Readonly<Partial<Record<Part, readonly string[]>>>;
  readonly layout: Layout;
  readonly boxes: Readonly<Record<string, Box>>;
  readonly tensors: readonly Tensor[];
  readonly damage: {
    readonly measure: string;
    readonly outcomes: readonly Outcome[];
    readonly sentences: readonly (readonly [string, string | null])[];
    readonly remarks: readonly string[];
  };
  readonly positions: { readonly arrangement: string | null; readonly shape: readonly [number, number]; readonly data: string | null } | null;
  readonly notes: readonly string[];
  /** Whether a server can run the model again. */
  readonly studio?: boolean;
}

export interface Selection {
  readonly mode: "figure" | "positions";
  readonly name: string;
  readonly box: Box;
  readonly layer: number;
  readonly step: Step;
  /** The tensor that is shown, and its name in the code. */
  readonly tensorName: string;
  readonly tensor: Tensor;
  readonly head: number;
}

export function selectionOf(payload: FigurePayload, { parameters }: Route): Selection {
  const names = Object.keys(payload.boxes);
  const wanted = parameters["box"] ?? "";
  const name = wanted in payload.boxes ? wanted : (names.find((one) => payload.boxes[one]!.kind === "attention") ?? names[0]!);
  const box = payload.boxes[name]!;
  const layer = integerParameter(parameters, "layer", payload.model.depth);
  const step = box.steps[Math.min(layer, box.steps.length - 1)]!;
  const initial = box.kind === "attention" ? "weights" : "out";
  const [tensorName, index] = step.tensors.find(([one]) => one === parameters["tensor"]) ?? step.tensors.find(([one]) => one === initial) ?? step.tensors.at(-1)!;
  const tensor = payload.tensors[index]!;
  return {
    mode: parameters["mode"] === "positions" ? "positions" : "figure",
    name,
    box,
    layer,
    step,
    tensorName,
    tensor,
    head: tensor.shape.length === 3 ? integerParameter(parameters, "head", tensor.shape[0]!) : 0,
  };
}

/** A matrix of numbers with labels of its rows, and of its columns if these are tokens. */
export interface Matrix {
  readonly values: Float32Array;
  readonly width: number;
  readonly rows: readonly string[];
  readonly columns: readonly string[] | null;
}

const decoded = new WeakMap<Tensor, Float32Array>();

export function matrixOf(payload: FigurePayload, tensor: Tensor, head: number): Matrix {
  const all = decoded.get(tensor) ?? (tensor.data === undefined ? Float32Array.from(tensor.values ?? []) : halves(bytes(tensor.data)));
  decoded.set(tensor, all);
  const width = tensor.shape.length === 1 ? 1 : tensor.shape.at(-1)!;
  const height = tensor.shape.length === 1 ? tensor.shape[0]! : tensor.shape.at(-2)!;
  return {
    values: all.subarray(head * width * height, (head + 1) * width * height),
    width,
    rows: rowTokens(payload, tensor) ?? Array.from({ length: height }, (_, row) => String(row)),
    columns: (tensor.columns && payload.tokens[tensor.columns]) || null,
  };
}

export const rowTokens = (payload: FigurePayload, { rows }: Tensor) => (rows && payload.tokens[rows]) || null;

/** A token with visible whitespace. */
export const visibleToken = (token: string) => token.replace(/\s+/g, "␣");

/** A number with four digits. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 || Math.abs(value) < 0.001 ? value.toExponential(2) : value.toFixed(3);
}

export const formatShape = (shape: readonly number[]) => shape.join(" × ");
