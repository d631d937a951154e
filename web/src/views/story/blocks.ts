// What a story is made of, as the library writes it (src/regard/render/page.py).

export interface HeatMap {
  readonly kind: "map";
  readonly title: string;
  readonly weights: readonly (readonly number[])[];
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  readonly row_title: string;
  readonly column_title: string;
}

export interface Chart {
  readonly kind: "chart";
  readonly title: string;
  readonly lines: readonly { readonly name: string; readonly values: readonly number[] }[];
  readonly at: readonly number[];
  readonly across: string;
  readonly up: string;
}

export interface Tabled {
  readonly kind: "table";
  readonly headers: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly caption: string;
}

export type Figure = HeatMap | Chart;
export type Block =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "section"; readonly heading: string; readonly blocks: readonly Block[] }
  | { readonly kind: "figures"; readonly blocks: readonly Block[] }
  | Tabled
  | Figure;

/** The blocks and those inside them, in reading order. */
export function every(blocks: readonly Block[]): Block[] {
  return blocks.flatMap((block) => ("blocks" in block ? [block, ...every(block.blocks)] : [block]));
}

export const isFigure = (block: Block): block is Figure => block.kind === "map" || block.kind === "chart";
