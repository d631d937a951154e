// The positions of the boxes of Figure 1 and the lines between them, from bottom to top as in the paper.
import type { BoxView } from "../../types";
import type { FigurePayload } from "./payload";

const [WIDE, SIDE, GAP, MARGIN] = [128, 78, 40, 8]; // widths: of a box, beside it, between the halves, around all
const [PLAIN, SPACE, FORK] = [28, 14, 26]; // heights: of most boxes, between boxes, below an attention
const HEIGHTS: Readonly<Record<string, number>> = { attention: 44, add: 24, norm: 24, ffn: 32 };
const RING = 9;
const LINES: Readonly<Record<string, readonly string[]>> = {
  "Masked Multi-Head Attention": ["Masked Multi-", "Head Attention"],
  "Multi-Head Attention": ["Multi-Head", "Attention"],
  "Multi-Head Attention (mask off)": ["Multi-Head", "Attention", "(mask off)"],
  "Encoder-Decoder Attention": ["Encoder-Decoder", "Attention"],
  "Positional Encoding": ["Positional", "Encoding"],
};

interface Rectangle {
  readonly x: number;
  /** Of the top. */
  y: number;
  readonly width: number;
  readonly height: number;
}

interface Shape extends Rectangle {
  readonly box: string;
  readonly kind: string;
  readonly lines: readonly string[];
}

/** A line through points x, y, x, y ..., with or without an arrow at its end. */
export interface Connector {
  readonly points: number[];
  readonly role: "flow" | "residual" | "memory" | "positions";
  readonly arrow: boolean;
}

interface Layout {
  width: number;
  height: number;
  readonly shapes: Shape[];
  readonly lines: Connector[];
  readonly labels: { readonly x: number; y: number; readonly text: string }[];
  /** Around the boxes of a layer. */
  readonly frames: Rectangle[];
}

const layouts = new WeakMap<FigurePayload, Layout>();

export function layoutOf(payload: FigurePayload): Layout {
  const known = layouts.get(payload) ?? layOut(payload);
  layouts.set(payload, known);
  return known;
}

function layOut(payload: FigurePayload): Layout {
  const boxes = Object.entries(payload.boxes);
  const parts = [...new Set(boxes.map(([, box]) => box.part))];
  const width = 2 * (MARGIN + SIDE) + WIDE * parts.length + GAP * (parts.length - 1);
  const layout: Layout = { width, height: 0, shapes: [], lines: [], labels: [], frames: [] };
  const halves = parts.map((part, number) => {
    const left = MARGIN + SIDE + number * (WIDE + GAP);
    return stackBoxes(
      layout,
      payload,
      boxes.filter(([, box]) => box.part === part),
      part,
      left,
      number ? "Outputs (shifted right)" : "Inputs",
    );
  });
  layout.height = Math.max(...halves.map((half) => half.y)) + MARGIN;
  const [encoder, decoder] = halves;
  if (encoder && decoder?.cross) {
    // The encoder's output becomes keys and values of the decoder, above the line of the queries.
    const [top, between, level] = [encoder.y + 10, encoder.left + WIDE + GAP / 2, decoder.cross - 9];
    for (const x of [decoder.middle - WIDE / 4, decoder.middle]) {
      const points = [
        encoder.middle,
        encoder.from,
        encoder.middle,
        top,
        between,
        top,
        between,
        level,
        x,
        level,
        x,
        decoder.cross,
      ];
      layout.lines.push({ points, role: "memory", arrow: true });
    }
  }
  // Heights above the bottom become distances from the top.
  for (const one of [...layout.shapes, ...layout.frames, ...layout.labels]) one.y = layout.height - one.y;
  for (const { points } of layout.lines)
    for (let at = 1; at < points.length; at += 2) points[at] = layout.height - points[at]!;
  return layout;
}

/** Builds a column of boxes; heights are measured upwards. */
function stackBoxes(
  layout: Layout,
  { without, model }: FigurePayload,
  boxes: readonly (readonly [string, BoxView])[],
  part: string,
  left: number,
  label: string,
) {
  const outer = part === "encoder" ? -1 : 1; // the side with free space
  const middle = left + WIDE / 2;
  let y = MARGIN + 18; // current height
  let from = y; // start of the line to the next box
  let cross = 0; // height of the cross-attention
  const line = (points: number[], role: Connector["role"] = "flow", arrow = true) =>
    layout.lines.push({ points, role, arrow });
  const lineTo = (top: number) => line([middle, from, middle, top]);
  const addShape = (name: string, box: BoxView, bottom: number) => {
    const height = HEIGHTS[box.kind] ?? PLAIN;
    layout.shapes.push({
      box: name,
      kind: box.kind,
      lines: LINES[box.title] ?? [box.title],
      x: left,
      y: bottom + height,
      width: WIDE,
      height,
    });
    y = from = bottom + height;
  };
  /** A circle with a plus on the line, and the box beside it. */
  const addPositions = (name: string, box: BoxView) => {
    const center = y + SPACE + RING;
    lineTo(center - RING);
    const corners = Array.from({ length: 17 }, (_, corner) => (2 * Math.PI * corner) / 16);
    line(
      corners.flatMap((angle) => [middle + RING * Math.cos(angle), center + RING * Math.sin(angle)]),
      "flow",
      false,
    );
    layout.labels.push({ x: middle, y: center, text: "+" });
    const x = outer < 0 ? left - SIDE : left + WIDE + 6;
    if (!without.includes("positions"))
      line([outer < 0 ? left - 6 : x, center, middle + outer * RING, center], "positions");
    layout.shapes.push({
      box: name,
      kind: box.kind,
      lines: LINES[box.title]!,
      x,
      y: center + 17,
      width: SIDE - 6,
      height: 34,
    });
    y = from = center + RING;
  };
  /** One line becomes queries, keys and values; for cross-attention it is the queries alone. */
  const fork = (top: number, isCross: boolean) => {
    const level = top - (isCross ? 17 : 12);
    const side = (sign: number) => [middle, level, middle + (sign * WIDE) / 4, level, middle + (sign * WIDE) / 4, top];
    if (isCross) {
      line([middle, from, ...side(1)]);
      cross = top;
    } else {
      lineTo(top);
      line(side(-1));
      line(side(1));
    }
  };
  const addLayer = (layer: readonly (readonly [string, BoxView])[]) => {
    y += SPACE;
    const bottom = y;
    let begin = 0;
    layer.forEach(([name, box], number) => {
      if (number === 0 || layer[number - 1]![1].kind === "add") begin = y + SPACE / 2;
      const attends = box.kind === "attention";
      const top = y + (attends ? FORK : SPACE);
      if (attends) fork(top, name.endsWith(".cross"));
      else lineTo(top);
      addShape(name, box, top);
      if (box.kind === "add" && !without.includes("residual")) {
        const [end, edge] = [top + HEIGHTS["add"]! / 2, outer < 0 ? left : left + WIDE];
        line([middle, begin, edge + outer * 9, begin, edge + outer * 9, end, edge, end], "residual");
      }
    });
    y += SPACE / 2;
    layout.frames.push({ x: left - 16, y, width: WIDE + 32, height: y - bottom });
    layout.labels.push({ x: outer < 0 ? left - 34 : left + WIDE + 34, y: (bottom + y) / 2, text: `${model.depth}×` });
  };
  layout.labels.push({ x: middle, y: MARGIN + 8, text: label });
  for (const group of ["in", "layer", "out"]) {
    const own = boxes.filter(([, box]) => box.group === group);
    if (group === "layer") addLayer(own);
    else
      for (const [name, box] of own) {
        if (box.kind === "positions") {
          addPositions(name, box);
          continue;
        }
        lineTo(y + SPACE);
        addShape(name, box, y + SPACE);
      }
  }
  if (boxes.some(([, box]) => box.kind === "softmax")) {
    lineTo(y + SPACE + 4);
    layout.labels.push({ x: middle, y: y + SPACE + 14, text: "Output Probabilities" });
    y += SPACE + 22;
  }
  return { y, from, left, middle, cross };
}
