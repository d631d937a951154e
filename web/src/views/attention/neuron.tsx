// Neuron mode: how the weights of one token are computed. Its query times each key, dimension by dimension; the sum,
// scaled, is the score; the softmax of the scores gives the weights.
import { useMemo, useState } from "preact/hooks";
import { Canvas, pointerIn, useWidth } from "../../canvas";
import { ScrollRegion, Select } from "../../components";
import { largestMagnitude } from "../../format";
import { type Painter, signedMatrix } from "../../painter";
import { type Selection, setLock, softmax } from "./maps";

const ROW = 24; // pixels

export interface Computation {
  readonly row: number;
  readonly query: Float32Array;
  readonly keys: readonly Float32Array[];
  readonly products: readonly Float32Array[];
  readonly scores: Float32Array;
  readonly weights: Float32Array;
}

export function computeWeights({ maps, layer, heads, rows, columns, locked }: Selection): Computation {
  const line = locked?.side === "row" ? locked.index : Math.min(1, rows.tokens.length - 1);
  const row = rows.tokens[line]?.[0] ?? 0;
  const head = heads[0]!;
  const query = maps.query(layer, head, row);
  const all = maps.keys(layer, head);
  const keys = columns.tokens.map(([column]) => all.subarray(column! * maps.headWidth, (column! + 1) * maps.headWidth));
  const scores = maps.scores(layer, head, row);
  const pick = (values: Float32Array) => Float32Array.from(columns.tokens, ([column]) => values[column!]!);
  const products = keys.map((key) => key.map((value, d) => value * query[d]!));
  return { row, query, keys, products, scores: pick(scores), weights: pick(softmax(scores)) };
}

export function Neuron({ selection }: { selection: Selection }) {
  const { maps, layer, heads, rows, columns } = selection;
  const computed = useMemo(() => computeWeights(selection), [selection]);
  const [element, width] = useWidth<HTMLTableCellElement>();
  const [pointed, setPointed] = useState<{ column: number; d: number } | null>(null);
  const size = maps.headWidth;
  const stripWidth = Math.max(size, width - 8);
  const [largestQuery, largestKey, largestProduct] = [
    largestMagnitude(computed.query),
    largestMagnitude(...computed.keys),
    largestMagnitude(...computed.products),
  ];
  const line = rows.tokens.findIndex(([token]) => token === computed.row);
  const hover = (isQuery: boolean) => ({
    onPointerMove: (event: PointerEvent) => {
      const { across, y } = pointerIn(event);
      const [d, column] = [Math.floor(across * size), isQuery ? -1 : Math.floor(y / ROW)];
      setPointed(d >= 0 && d < size && column < computed.keys.length ? { column, d } : null);
    },
    onPointerLeave: () => setPointed(null),
  });
  const tokens = Object.fromEntries(rows.labels.map((label, index) => [index, `${index} ${label}`]));
  return (
    <div>
      <div class="choices">
        <Select
          label="Query token"
          options={tokens}
          value={line}
          onSelect={(index) => setLock({ side: "row", index: Number(index) }, selection)}
        />
        <span class="muted">
          score = {maps.raw.bias ? "q · k × scale + position bias" : "q · k × scale"}, scale{" "}
          {maps.raw.scale!.toPrecision(4)}; layer {layer}, head {heads[0]}
        </span>
      </div>
      <ScrollRegion label="Query, keys, products, scores and weights">
        <table class="neuron">
          <thead>
            <tr>
              <th scope="col">token</th>
              <th scope="col">key k</th>
              <th scope="col">q × k</th>
              <th scope="col" class="number">
                score
              </th>
              <th scope="col" class="number">
                softmax
              </th>
            </tr>
            <tr>
              <th scope="row" class="token" dir="auto">
                q of {rows.labels[line]}
              </th>
              <td class="strip" ref={element}>
                <Strips
                  rows={[computed.query]}
                  largest={largestQuery}
                  width={stripWidth}
                  label="Query"
                  canvas={hover(true)}
                />
              </td>
              <td colSpan={3} class="muted value" role="status">
                {pointed ? describe(computed, pointed, columns.labels) : "Point at a cell for its numbers."}
              </td>
            </tr>
          </thead>
          <tbody>
            {columns.labels.map((label, index) => (
              <tr key={index} style={{ height: `${ROW}px` }} data-index={index}>
                <th scope="row" class="token" dir="auto">
                  {label}
                </th>
                {index === 0 && (
                  <>
                    <td class="strip" rowSpan={columns.labels.length}>
                      <Strips
                        rows={computed.keys}
                        largest={largestKey}
                        width={stripWidth}
                        label="Keys"
                        canvas={hover(false)}
                      />
                    </td>
                    <td class="strip" rowSpan={columns.labels.length}>
                      <Strips
                        rows={computed.products}
                        largest={largestProduct}
                        width={stripWidth}
                        label="Query times keys"
                        canvas={hover(false)}
                      />
                    </td>
                  </>
                )}
                <td class="number">
                  {Number.isFinite(computed.scores[index]) ? computed.scores[index]!.toFixed(3) : "masked"}
                </td>
                <td class="number">
                  <span
                    class="bar"
                    style={{ width: `${100 * computed.weights[index]!}%`, background: "var(--accent)" }}
                  />
                  {computed.weights[index]!.toFixed(3)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollRegion>
      <p class="muted note">
        Blue is positive, orange negative; largest magnitudes: q {largestQuery.toFixed(2)}, k {largestKey.toFixed(2)}, q
        × k {largestProduct.toFixed(2)}.
      </p>
    </div>
  );
}

function describe(
  computed: Computation,
  { column, d }: { column: number; d: number },
  labels: readonly string[],
): string {
  const q = computed.query[d]!.toFixed(3);
  if (column < 0) return `dimension ${d}: q ${q}`;
  return (
    `${labels[column]}, dimension ${d}: q ${q} × k ${computed.keys[column]![d]!.toFixed(3)} = ` +
    `${computed.products[column]![d]!.toFixed(3)}`
  );
}

interface StripsProps {
  readonly rows: readonly Float32Array[];
  readonly largest: number;
  readonly width: number;
  readonly label: string;
  readonly canvas: object;
}

/** Vectors below each other. */
function Strips({ rows, largest, width, label, canvas }: StripsProps) {
  const draw = (painter: Painter, context: CanvasRenderingContext2D) => {
    const across = rows[0]?.length ?? 1;
    const numbers = new Float32Array(rows.length * across);
    rows.forEach((row, i) => numbers.set(row, i * across));
    signedMatrix(painter, numbers, largest, across, 0, 0, width, rows.length * ROW);
    for (let i = 0; i <= rows.length; i++) context.clearRect(0, i * ROW - 3, width, 6);
  };
  return (
    <Canvas
      width={width}
      height={rows.length * ROW}
      inputs={[rows, largest]}
      draw={draw}
      label={label}
      canvas={canvas}
    />
  );
}
