// The residual stream: the layers one above the other, each sublayer beside the stream that it reads and adds to, with
// the lengths of the vectors of one token.
import { useMemo } from "preact/hooks";
import { Canvas, useWidth } from "../../canvas";
import { DataTable, ScrollRegion, Select } from "../../components";
import { decimal, layerNumbers, range } from "../../format";
import { outline, type Painter } from "../../painter";
import { currentRoute, integerParameter, type Route, setParameters } from "../../route";
import { colors, series } from "../../theme";
import type { BoxPassView } from "../../types";
import type { Drawing, Table } from "../../view";
import { type FigurePayload, matrixOf, visibleToken } from "./payload";

/**
 * What one sublayer adds to the vector of a token: lengths before, of the update, and after; the cosine of before and
 * after.
 */
interface Update {
  readonly part: string;
  readonly layer: number;
  readonly title: string;
  readonly kind: string;
  readonly cross: boolean;
  readonly before: number;
  readonly update: number;
  readonly after: number;
  readonly cosine: number;
}

const SUBLAYERS = [
  { add: "attention_residual", sublayer: "attention" },
  { add: "cross_residual", sublayer: "cross" },
  { add: "ffn_residual", sublayer: "ffn" },
];

export interface StreamSelection {
  readonly layers: number;
  readonly token: number;
}

export function streamSelection(payload: FigurePayload, { parameters }: Route): StreamSelection {
  const { depth } = payload.model;
  const shown = integerParameter(parameters, "layers", depth + 1, Math.min(2, depth));
  return {
    layers: Math.max(1, shown),
    token: integerParameter(parameters, "row", Object.values(payload.tokens)[0]!.length),
  };
}

const length = (vector: Float32Array) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));

export function updatesOf(payload: FigurePayload, { layers, token }: StreamSelection): Update[] {
  const vector = (step: BoxPassView, name: string, part: string) => {
    const index = step.tensors.find(([one]) => one === name)?.[1];
    if (index === undefined) return null; // the residual is removed
    const { values, width } = matrixOf(payload, payload.tensors[index]!, 0);
    const row = Math.min(token, payload.tokens[part]!.length - 1);
    return values.subarray(row * width, (row + 1) * width);
  };
  return Object.keys(payload.tokens).flatMap((part) =>
    range(layers).flatMap((index) =>
      SUBLAYERS.filter(({ add }) => `${part}.${add}` in payload.boxes).map(({ add, sublayer }) => {
        const [step, box] = [payload.boxes[`${part}.${add}`]!.steps[index]!, payload.boxes[`${part}.${sublayer}`]!];
        const [x, update, after] = ["x", "sublayer", "out"].map((name) => vector(step, name, part));
        const before = x ?? new Float32Array(after!.length);
        const product = before.reduce((sum, value, at) => sum + value * after![at]!, 0);
        return {
          part,
          layer: index + 1,
          title: box.title,
          kind: box.kind,
          cross: sublayer === "cross",
          before: length(before),
          update: length(update!),
          after: length(after!),
          cosine: product / (length(before) * length(after!) || 1),
        };
      }),
    ),
  );
}

// Pixels: a sublayer's row, a half, around all, a box.
const [ROW, COLUMN, MARGIN, BOX] = [92, 340, 18, [150, 34] as const];
const [STREAM, BRANCH, RING] = [64, 130, 8]; // x of the stream and of its boxes in a half, radius of a sum

export function streamDrawing(payload: FigurePayload, selection: StreamSelection): Drawing {
  const updates = updatesOf(payload, selection);
  const parts = Object.keys(payload.tokens);
  const rows = Math.max(...parts.map((part) => updates.filter((one) => one.part === part).length));
  const height = 2 * MARGIN + 92 + rows * ROW;
  const bottom = height - MARGIN - 34;
  const { norm_first } = payload.model;
  const residual = !payload.without.includes("residual");
  const draw = (painter: Painter) => {
    const { accent, ink, muted, page } = colors.get();
    const arrow = (points: readonly number[], color = ink, width = 1.2) => {
      const ends = range(points.length / 2 - 1).flatMap((at) => points.slice(2 * at, 2 * at + 4));
      const [fromX, fromY, toX, toY] = points.slice(-4) as [number, number, number, number];
      const size = Math.hypot(toX - fromX, toY - fromY) || 1;
      const [dx, dy] = [(5 * (toX - fromX)) / size, (5 * (toY - fromY)) / size];
      for (const side of [-1, 1]) ends.push(toX - dx - side * dy, toY - dy + side * dx, toX, toY);
      painter.lines(ends, color, 1, false, width);
    };
    const box = (text: string, x: number, y: number, [width, tall]: readonly [number, number], color: string) => {
      painter.rect(x, y - tall / 2, width, tall, page);
      painter.rect(x, y - tall / 2, width, tall, color, 0.28);
      outline(painter, x, y - tall / 2, width, tall, ink);
      painter.text(text, x + width / 2, y, { size: 12, align: "center" });
    };
    const tops = parts.map((part, half) => {
      const own = updates.filter((one) => one.part === part);
      const left = MARGIN + half * COLUMN;
      const x = left + STREAM;
      const top = bottom - own.length * ROW;
      const token = visibleToken(payload.tokens[part]![Math.min(selection.token, payload.tokens[part]!.length - 1)]!);
      painter.text(`${part}: ${token}`, x, bottom + 24, { align: "center", bold: true });
      painter.text(`length ${own[0]!.before.toFixed(2)}`, left + BRANCH, bottom + 10, { size: 12, color: muted });
      own.forEach((one, number) => {
        const [from, to] = [bottom - number * ROW, bottom - (number + 1) * ROW];
        const sum = to + 26;
        const level = from - 22;
        if (number === 0 || own[number - 1]!.layer !== one.layer) {
          painter.line(left, from, left + COLUMN - 30, from, muted, 0.4);
          painter.text(`layer ${one.layer}`, left, from - 10, { size: 12, color: muted });
        }
        if (residual) painter.line(x, from, x, sum + RING, accent, 1, 3);
        arrow([x, level + 6, left + BRANCH + BOX[0] / 2, level + 6, left + BRANCH + BOX[0] / 2, level - 2]);
        box(
          (norm_first ? "Norm, " : "") +
            (one.cross ? "Cross-Attention" : one.kind === "attention" ? "Self-Attention" : "Feed Forward"),
          left + BRANCH,
          level - 14,
          [BOX[0], 24],
          series(one.kind === "attention" ? 4 : 5),
        );
        arrow([left + BRANCH + BOX[0] / 2, level - 26, left + BRANCH + BOX[0] / 2, sum, x + RING, sum]);
        painter.text(`+ ${one.update.toFixed(2)}`, left + BRANCH + BOX[0] / 2 + 8, sum + 10, { size: 12 });
        painter.rect(x - RING, sum - RING, 2 * RING, 2 * RING, page);
        outline(painter, x - RING, sum - RING, 2 * RING, 2 * RING, accent);
        painter.text("+", x, sum, { align: "center", color: ink });
        painter.line(x, sum - RING, x, to, accent, 1, 3);
        if (!norm_first) box("Norm", x - 24, to + 9, [48, 16], muted);
        painter.text(`length ${one.after.toFixed(2)}`, left + BRANCH, to + 10, { size: 12, color: muted });
      });
      arrow([x, top, x, top - 22], accent, 3);
      const { depth } = payload.model;
      painter.text(
        selection.layers < depth ? `to layer ${selection.layers + 1} of ${depth}` : `out of layer ${depth}`,
        x,
        top - 34,
        { align: "center", size: 12, color: muted },
      );
      return { x, top, own };
    });
    const [encoder, decoder] = tops;
    if (!encoder || !decoder) return;
    // The top of the encoder gives the keys and values of every cross-attention.
    const between = MARGIN + COLUMN - 14;
    const lift = encoder.top - 14;
    decoder.own.forEach((one, number) => {
      if (!one.cross) return;
      const level = bottom - number * ROW - 22 - 14;
      arrow([encoder.x, lift, between, lift, between, level, MARGIN + COLUMN + BRANCH, level], muted);
    });
    painter.text("keys, values", between - 4, lift - 8, { align: "right", size: 12, color: muted });
  };
  return { width: 2 * MARGIN + parts.length * COLUMN, height, draw };
}

export function streamTable(payload: FigurePayload, selection: StreamSelection): Table {
  return {
    headers: ["part", "layer", "sublayer", "length_before", "length_of_update", "length_after", "cosine_before_after"],
    rows: updatesOf(payload, selection).map((one) => [
      one.part,
      one.layer,
      one.title,
      ...[one.before, one.update, one.after, one.cosine].map((value) => Number(value.toFixed(4))),
    ]),
  };
}

export function ResidualStream({ payload }: { payload: FigurePayload }) {
  const selection = streamSelection(payload, currentRoute.use());
  const { layers, token } = selection;
  const [element, room] = useWidth<HTMLDivElement>();
  const drawing = useMemo(() => streamDrawing(payload, selection), [payload, layers, token]);
  const updates = updatesOf(payload, selection);
  const tokens = Object.values(payload.tokens)[0]!;
  return (
    <section aria-labelledby="stream">
      <h2 id="stream">Residual stream</h2>
      <p>
        Each sublayer reads the vector of a token, and its output is added to that vector. So a straight line leads from
        the embedding to the last layer, and the sublayers only add to it.
      </p>
      <div class="choices">
        <Select
          label="Layers"
          options={layerNumbers(payload.model.depth).map(String)}
          value={layers}
          onSelect={(value) => setParameters({ layers: value })}
        />
        <Select
          label="Token"
          options={tokens.map((text, number) => [String(number), `${number}: ${visibleToken(text)}`] as const)}
          value={token}
          onSelect={(value) => setParameters({ row: value })}
        />
      </div>
      <div ref={element}>
        {room > 0 && (
          <ScrollRegion label="Residual stream, a drawing">
            <Canvas
              {...drawing}
              inputs={[drawing]}
              label={`Residual stream of ${layers} layers`}
              draw={(painter) => drawing.draw(painter)}
            />
          </ScrollRegion>
        )}
      </div>
      <DataTable
        class="figure-numbers"
        label="Lengths of the vectors"
        headers={[
          "sublayer",
          "layer",
          "length before",
          "length of update",
          "length after",
          "cosine of before and after",
        ]}
        rows={updates.map((one) => [
          `${one.title}${Object.keys(payload.tokens).length > 1 ? `, ${one.part}` : ""}`,
          one.layer,
          ...[one.before, one.update, one.after].map((value) => value.toFixed(2)),
          decimal(one.cosine),
        ])}
      />
    </section>
  );
}
