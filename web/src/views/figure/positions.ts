// Positional encodings as numbers: the paper's formula in both layouts. Knows no drawing.
import type { Route } from "../../route";
import { bytes, halves } from "../attention/payload";
import type { FigurePayload, Matrix } from "./payload";

export type Arrangement = "interleaved" | "halves";

export const WIDEST = 1024;
export const LONGEST = 512;

/** What the lectures show: 128 numbers for 50 places, and rows of 512 and of 64 numbers, in different layouts. */
export const SHOWN: readonly { readonly width: number; readonly count: number; readonly layout: Arrangement }[] = [
  { width: 128, count: 50, layout: "interleaved" },
  { width: 512, count: 20, layout: "halves" },
  { width: 64, count: 10, layout: "interleaved" },
];

export interface Wanted {
  readonly width: number;
  readonly count: number;
  readonly layout: Arrangement;
}

export function wanted({ parameters }: Route): Wanted {
  const number = (name: string, most: number, otherwise: number) => {
    const value = Number.parseInt(parameters[name] ?? "", 10);
    return value >= 1 && value <= most ? value : otherwise;
  };
  const width = number("width", WIDEST, 128);
  return { width: width + (width % 2), count: number("count", LONGEST, 50), layout: parameters["layout"] === "halves" ? "halves" : "interleaved" };
}

/** p(t)[2k] = sin(w t), p(t)[2k+1] = cos(w t) with w = 10000^(-2k/width); halves: all sines, then all cosines. */
export function sinusoids({ width, count, layout }: Wanted): Matrix {
  const values = new Float32Array(width * count);
  for (let t = 0; t < count; t++) {
    for (let k = 0; k < width / 2; k++) {
      const angle = t * 10000 ** ((-2 * k) / width);
      const [sine, cosine] = layout === "halves" ? [k, width / 2 + k] : [2 * k, 2 * k + 1];
      values[t * width + sine] = Math.sin(angle);
      values[t * width + cosine] = Math.cos(angle);
    }
  }
  return { values, across: width, rows: places(count), columns: null };
}

/** What the model has learned instead; null where it has learned nothing. */
export function learned(payload: FigurePayload): Matrix | null {
  const found = payload.positions;
  if (!found?.data) return null;
  return { values: halves(bytes(found.data)), across: found.shape[1], rows: places(found.shape[0]), columns: null };
}

const places = (count: number) => Array.from({ length: count }, (_, place) => String(place));
