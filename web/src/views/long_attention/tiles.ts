// The weights of a part of an attention map, tile by tile, from queries, keys and normalizers. Runs in a worker, and in
// the page where a worker cannot start: the computation returns to the event loop every few milliseconds.
import { bytes } from "../../binary";

export const TILE = 256; // tokens of a side
const ROWS = 32; // between two looks at the clock
const SLICE = 10; // milliseconds until the computation returns to the event loop

/** One head as the library sends it: `query` and `key` (T, D) and `normalizer` (T,) are float32 in base64. */
export interface EncodedHead {
  readonly query: string;
  readonly key: string;
  readonly normalizer: string;
  readonly scale: number;
  readonly causal: boolean;
  readonly window: number | null;
}

/** A square of `size` tokens a side. A newer request, with a larger `id`, replaces an older one. */
export interface TileRequest {
  readonly id: number;
  readonly row: number;
  readonly column: number;
  readonly size: number;
}

/** Up to TILE x TILE weights in row-major order; `row` and `column` are positions in the whole map. */
export interface Tile {
  readonly row: number;
  readonly column: number;
  readonly rows: number;
  readonly columns: number;
  readonly weights: Float32Array<ArrayBuffer>;
}

export interface TileAnswer {
  readonly id: number;
  readonly tile: Tile;
}

type ArrayName = "query" | "key" | "normalizer";

type Head = Omit<EncodedHead, ArrayName> & { readonly [name in ArrayName]: Float32Array };

/** Some fields of a head, or a request after all of them. */
export type TileMessage = Partial<EncodedHead> | TileRequest;

/** Number of tiles of a part. */
export const tileCount = (rows: number, columns: number) => Math.ceil(rows / TILE) * Math.ceil(columns / TILE);

/** Yields every tile of a request, and undefined after every ROWS rows. */
function* computeTiles(head: Head, { row, column, size }: TileRequest): Generator<Tile | undefined> {
  const length = head.normalizer.length;
  const [bottom, right] = [Math.min(row + size, length), Math.min(column + size, length)];
  for (let top = row; top < bottom; top += TILE) {
    for (let left = column; left < right; left += TILE) {
      const [rows, columns] = [Math.min(TILE, bottom - top), Math.min(TILE, right - left)];
      const weights = new Float32Array(rows * columns);
      for (let first = 0; first < rows; first += ROWS) {
        computeRows(head, top, left, first, Math.min(first + ROWS, rows), columns, weights);
        yield undefined;
      }
      yield { row: top, column: left, rows, columns, weights };
    }
  }
}

/** exp(scale * query . key - normalizer) for the rows `first` to `end` of a tile; 0 outside the mask. */
function computeRows(
  { query, key, normalizer, scale, causal, window }: Head,
  row: number,
  column: number,
  first: number,
  end: number,
  columns: number,
  weights: Float32Array,
): void {
  const width = query.length / normalizer.length;
  for (let i = first; i < end; i++) {
    const start = (row + i) * width;
    for (let j = 0; j < columns; j++) {
      const distance = row + i - column - j;
      if ((causal && distance < 0) || (window !== null && Math.abs(distance) > window)) continue;
      const other = (column + j) * width;
      let sum = 0;
      for (let d = 0; d < width; d++) sum += query[start + d]! * key[other + d]!;
      weights[i * columns + j] = Math.exp(scale * sum - normalizer[row + i]!);
    }
  }
}

/** Returns a function that takes messages; `answer` gets the tiles of the newest request only. */
export function tileComputer(answer: (answer: TileAnswer) => void): (message: TileMessage) => void {
  const head: Partial<Record<keyof Head, unknown>> = {};
  let newest = 0;
  const compute = async (request: TileRequest) => {
    let start = performance.now();
    for (const tile of computeTiles(head as Head, request)) {
      if (tile) answer({ id: request.id, tile });
      if (performance.now() - start < SLICE) continue;
      await nextTask();
      if (request.id !== newest) return;
      start = performance.now();
    }
  };
  return (message) => {
    if ("id" in message) {
      newest = message.id;
      void compute(message);
    } else {
      for (const [name, value] of Object.entries(message))
        head[name as keyof Head] = typeof value === "string" ? new Float32Array(bytes(value).buffer) : value;
    }
  };
}

/** Resolves after the messages and events that are waiting. */
export const nextTask = () => new Promise<void>((resolve) => setTimeout(resolve));
