// The maps of one kind of attention as numbers: of a head, rolled out over layers, or as flow; by pieces or by words;
// of all tokens or from one text to the other. Knows no drawing.
import { bytes, halves, Vectors, type RawMap } from "./payload";

export type Source = "heads" | "rollout" | "flow";
export type Level = "piece" | "word";
export type Pair = "all" | "aa" | "ab" | "ba" | "bb";

/** Which numbers are wanted. */
export interface Wanted {
  readonly source: Source;
  readonly level: Level;
  readonly pair: Pair;
}

/** One side of what is shown: a name for each line and the tokens it is made of. */
export interface Side {
  readonly names: readonly string[];
  readonly tokens: readonly (readonly number[])[];
}

const KEPT = 40; // whole maps held at once

export class Maps {
  readonly layers: number;
  readonly heads: number;
  readonly paired: boolean;
  readonly words: boolean;
  readonly width: number; // of a query
  private readonly weights: Uint8Array | null;
  private readonly q: Vectors | null;
  private readonly k: Vectors | null;
  private readonly bias: Float32Array | null;
  private readonly rollout: Uint8Array | null;
  private readonly flow: Uint8Array | null;
  private readonly kept = new Map<string, Float32Array>();
  private readonly sides = new Map<string, Side>();

  constructor(readonly raw: RawMap) {
    this.layers = raw.layers;
    this.heads = raw.heads;
    this.weights = raw.weights === null ? null : bytes(raw.weights);
    const maps = raw.layers * raw.heads;
    this.q = raw.q === null ? null : new Vectors(raw.q, raw.q_step ?? null, maps * raw.rows.length);
    this.k = raw.k === null ? null : new Vectors(raw.k, raw.k_step ?? null, maps * raw.columns.length);
    this.bias = raw.bias ? halves(bytes(raw.bias)) : null;
    this.rollout = raw.rollout === null ? null : bytes(raw.rollout);
    this.flow = raw.flow === null ? null : bytes(raw.flow);
    this.width = this.q?.width ?? 0;
    this.paired = new Set([...raw.row_segments, ...raw.column_segments]).size > 1;
    this.words = repeats(raw.row_words) || repeats(raw.column_words);
  }

  get sources(): readonly Source[] {
    return ["heads", ...(this.rollout ? (["rollout"] as const) : []), ...(this.flow ? (["flow"] as const) : [])];
  }

  /** Whether queries and keys are here, to show how a weight comes about. */
  get explained(): boolean {
    return this.q !== null && this.k !== null && this.raw.scale !== null;
  }

  rows({ level, pair }: Wanted): Side {
    const { rows, row_words, row_segments } = this.raw;
    return this.side(`rows ${level} ${pair[0]}`, () => side(rows, row_words, row_segments, level, segmentOf(pair, 0)));
  }

  columns({ level, pair }: Wanted): Side {
    const { columns, column_words, column_segments } = this.raw;
    return this.side(`columns ${level} ${pair[1]}`, () => side(columns, column_words, column_segments, level, segmentOf(pair, 1)));
  }

  /** The same object for the same wish, so that what is drawn of it need not be drawn again. */
  private side(name: string, make: () => Side): Side {
    const found = this.sides.get(name) ?? make();
    this.sides.set(name, found);
    return found;
  }

  /** What is shown of a layer and head, row after row. A word looks as its pieces do on average, and is looked at as they are in sum. */
  shown(layer: number, head: number, wanted: Wanted): Float32Array {
    const { source, level, pair } = wanted;
    if (level === "piece" && pair === "all") return this.whole(layer, head, source);
    return this.keep(`${source} ${layer} ${head} ${level} ${pair}`, () => {
      const map = this.whole(layer, head, source);
      const rows = this.rows(wanted).tokens;
      const columns = this.columns(wanted).tokens;
      const found = new Float32Array(rows.length * columns.length);
      const across = this.raw.columns.length;
      rows.forEach((row, i) => {
        columns.forEach((column, j) => {
          let sum = 0;
          for (const t of row) for (const s of column) sum += map[t * across + s]!;
          found[i * columns.length + j] = Math.min(1, sum / row.length);
        });
      });
      return found;
    });
  }

  /** A map for a small picture: where it must be made of queries and keys, of evenly spread rows only. */
  sketch(layer: number, head: number, wanted: Wanted, rows: number): Float32Array {
    const { source, level, pair } = wanted;
    const count = this.raw.rows.length;
    const plain = source === "heads" && level === "piece" && pair === "all";
    if (this.weights || !plain || count <= rows) return this.shown(layer, head, wanted);
    const keys = wide(this.keys(layer, head));
    const found = new Float32Array(rows * this.raw.columns.length);
    for (let i = 0; i < rows; i++) {
      const row = Math.floor(((i + 0.5) * count) / rows);
      found.set(softmax(this.scores(layer, head, row, keys)), i * this.raw.columns.length);
    }
    return found;
  }

  query(layer: number, head: number, row: number): Float32Array {
    const number = (layer * this.heads + head) * this.raw.rows.length + row;
    return this.q!.slice(number, number + 1);
  }

  /** The keys of a head, one after the other. */
  keys(layer: number, head: number): Float32Array {
    const count = this.raw.columns.length;
    const first = (layer * this.heads + head) * count;
    return this.k!.slice(first, first + count);
  }

  /** The scores of a row before softmax; -Infinity where it may not look. */
  scores(layer: number, head: number, row: number, keys = wide(this.keys(layer, head))): Float32Array {
    const { columns, rows, causal } = this.raw;
    const { width, bias } = this;
    const q = wide(this.query(layer, head, row));
    const scale = this.raw.scale ?? 1;
    const count = columns.length;
    const last = causal ? Math.min(count - 1, row) : count - 1;
    const found = products(q, keys, width, last + 1, count);
    for (let column = 0; column <= last; column++) {
      const added = bias ? bias[head * (rows.length + count - 1) + column - row + rows.length - 1]! : 0;
      found[column] = found[column]! * scale + added;
    }
    return found;
  }

  private whole(layer: number, head: number, source: Source): Float32Array {
    const size = this.raw.rows.length * this.raw.columns.length;
    if (source === "flow" && this.flow) return this.keep("flow", () => shares(this.flow!, 0, size));
    if (source === "rollout" && this.rollout) return this.keep(`rollout ${layer}`, () => shares(this.rollout!, layer * size, size));
    return this.keep(`${layer} ${head}`, () =>
      this.weights ? shares(this.weights, (layer * this.heads + head) * size, size) : this.rebuilt(layer, head),
    );
  }

  private rebuilt(layer: number, head: number): Float32Array {
    const across = this.raw.columns.length;
    const found = new Float32Array(this.raw.rows.length * across);
    const keys = wide(this.keys(layer, head));
    for (let row = 0; row < this.raw.rows.length; row++) found.set(softmax(this.scores(layer, head, row, keys)), row * across);
    return found;
  }

  private keep(name: string, make: () => Float32Array): Float32Array {
    const found = this.kept.get(name) ?? make();
    this.kept.delete(name); // and to the end: the one used longest ago goes first
    this.kept.set(name, found);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value!);
    return found;
  }
}

/** The same numbers in the width that is computed with: a key meets every query and is widened once, not each time. */
function wide(numbers: Float32Array): Float64Array {
  return new Float64Array(numbers);
}

/** A query with each of the first keys; -Infinity for the others, up to `count`. */
function products(q: Float64Array, keys: Float64Array, width: number, first: number, count: number): Float32Array {
  const found = new Float32Array(count).fill(-Infinity, first);
  let column = 0;
  // Four keys at once: a number of the query is fetched once for them, and no sum waits for another.
  for (; column + 3 < first; column += 4) {
    const a = column * width;
    const [b, c, e] = [a + width, a + 2 * width, a + 3 * width];
    let one = 0;
    let two = 0;
    let three = 0;
    let four = 0;
    for (let d = 0; d < width; d++) {
      const x = q[d]!;
      one += x * keys[a + d]!;
      two += x * keys[b + d]!;
      three += x * keys[c + d]!;
      four += x * keys[e + d]!;
    }
    found[column] = one;
    found[column + 1] = two;
    found[column + 2] = three;
    found[column + 3] = four;
  }
  for (; column < first; column++) {
    let sum = 0;
    for (let d = 0; d < width; d++) sum += q[d]! * keys[column * width + d]!;
    found[column] = sum;
  }
  return found;
}

export function softmax(scores: Float32Array): Float32Array {
  // Plain loops: a long text has a million of these to do.
  const count = scores.length;
  const found = new Float32Array(count);
  let most = -Infinity;
  for (let i = 0; i < count; i++) if (scores[i]! > most) most = scores[i]!;
  let sum = 0;
  for (let i = 0; i < count; i++) sum += found[i] = Math.exp(scores[i]! - most);
  for (let i = 0; i < count; i++) found[i] = found[i]! / sum;
  return found;
}

function shares(values: Uint8Array, start: number, size: number): Float32Array {
  const found = new Float32Array(size);
  for (let i = 0; i < size; i++) found[i] = values[start + i]! / 255;
  return found;
}

function segmentOf(pair: Pair, end: 0 | 1): 0 | 1 | null {
  return pair === "all" ? null : pair[end] === "a" ? 0 : 1;
}

function repeats(words: readonly number[]): boolean {
  return words.some((word, i) => i > 0 && word === words[i - 1]);
}

function side(
  names: readonly string[],
  words: readonly number[],
  segments: readonly number[],
  level: Level,
  segment: 0 | 1 | null,
): Side {
  const tokens: number[][] = [];
  names.forEach((_, i) => {
    if (segment !== null && segments[i] !== segment) return;
    const last = tokens.at(-1)?.at(-1);
    if (level === "word" && last === i - 1 && words[i] === words[last] && segments[i] === segments[last]) tokens.at(-1)!.push(i);
    else tokens.push([i]);
  });
  return { tokens, names: tokens.map((group) => group.map((i, n) => (n ? bare(names[i]!) : names[i]!)).join("")) };
}

function bare(piece: string): string {
  return piece.startsWith("##") && piece.length > 2 ? piece.slice(2) : piece;
}
