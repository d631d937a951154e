// The payload of the view of Figure 1, and what the route selects.
import { bytes, halves } from "../../binary";
import { integerParameter, layerParameter, type Route } from "../../route";
import type { BoxPassView, BoxView, TensorView } from "../../types";
import type { ViewOf } from "../../view";

export type FigurePayload = ViewOf<"figure">;

export const MODES = ["figure", "stream", "positions"] as const;

export interface Selection {
  readonly mode: (typeof MODES)[number];
  readonly name: string;
  readonly box: BoxView;
  readonly layer: number;
  readonly step: BoxPassView;
  /** The tensor that is shown, and its name in the code. */
  readonly tensorName: string;
  readonly tensor: TensorView;
  readonly head: number;
}

export function selectionOf(payload: FigurePayload, { parameters }: Route): Selection {
  const names = Object.keys(payload.boxes);
  const wanted = parameters["box"] ?? "";
  const name =
    wanted in payload.boxes ? wanted : (names.find((one) => payload.boxes[one]!.kind === "attention") ?? names[0]!);
  const box = payload.boxes[name]!;
  const layer = layerParameter(parameters, payload.model.depth);
  const step = box.steps[Math.min(layer, box.steps.length) - 1]!;
  const initial = box.kind === "attention" ? "weights" : "out";
  const [tensorName, index] =
    step.tensors.find(([one]) => one === parameters["tensor"]) ??
    step.tensors.find(([one]) => one === initial) ??
    step.tensors.at(-1)!;
  const tensor = payload.tensors[index]!;
  return {
    mode: MODES.find((mode) => mode === parameters["mode"]) ?? "figure",
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

const decoded = new WeakMap<TensorView, Float32Array>();

export function matrixOf(payload: FigurePayload, tensor: TensorView, head: number): Matrix {
  const all =
    decoded.get(tensor) ?? (tensor.data === null ? Float32Array.from(tensor.values ?? []) : halves(bytes(tensor.data)));
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

export const rowTokens = (payload: FigurePayload, { rows }: TensorView) => (rows && payload.tokens[rows]) || null;

/** A token with visible whitespace. */
export const visibleToken = (token: string) => token.replace(/\s+/g, "␣");

/** A number with four digits. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 || Math.abs(value) < 0.001 ? value.toExponential(2) : value.toFixed(3);
}

export const formatShape = (shape: readonly number[]) => shape.join(" × ");
