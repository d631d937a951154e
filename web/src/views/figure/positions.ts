// Positional encodings as numbers: the formula of the paper in both layouts.
import { bytes, halves } from "../../binary";
import type { Route } from "../../route";
import type { FigurePayload, Matrix } from "./payload";

export const MAX_WIDTH = 1024;
export const MAX_COUNT = 512;

export interface EncodingOptions {
  readonly width: number;
  readonly count: number;
  readonly layout: "interleaved" | "halves";
}

/** The sizes in the lectures. */
export const PRESETS: readonly EncodingOptions[] = [
  { width: 128, count: 50, layout: "interleaved" },
  { width: 512, count: 20, layout: "halves" },
  { width: 64, count: 10, layout: "interleaved" },
];

export function encodingOptions({ parameters }: Route): EncodingOptions {
  const number = (name: string, most: number, fallback: number) => {
    const value = Number.parseInt(parameters[name] ?? "", 10);
    return value >= 1 && value <= most ? value : fallback;
  };
  const width = number("width", MAX_WIDTH, 128);
  return { width: width + (width % 2), count: number("count", MAX_COUNT, 50), layout: parameters["layout"] === "halves" ? "halves" : "interleaved" };
}

/** p(t)[2k] = sin(w t), p(t)[2k+1] = cos(w t) with w = 10000^(-2k/width); halves: all sines, then all cosines. */
export function sinusoids({ width, count, layout }: EncodingOptions): Matrix {
  const values = new Float32Array(width * count);
  for (let t = 0; t < count; t++) {
    for (let k = 0; k < width / 2; k++) {
      const angle = t * 10000 ** ((-2 * k) / width);
      const [sine, cosine] = layout === "halves" ? [k, width / 2 + k] : [2 * k, 2 * k + 1];
      values[t * width + sine] = Math.sin(angle);
      values[t * width + cosine] = Math.cos(angle);
    }
  }
  return { values, width, rows: positionLabels(count), columns: null };
}

/** The learned position embeddings of the model, if it has any. */
export function learnedEncodings({ positions }: FigurePayload): Matrix | null {
  if (!positions?.data) return null;
  return { values: halves(bytes(positions.data)), width: positions.shape[1], rows: positionLabels(positions.shape[0]), columns: null };
}

const positionLabels = (count: number) => Array.from({ length: count }, (_, position) => String(position));
