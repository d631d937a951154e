// Neuron view: how one token's weights come about. Its query times each key, number by number; the sum, scaled, is the
// score; softmax over the scores gives the weights. Real numbers, computed here from the query and the keys.
import { useMemo, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { useWidth } from "../../canvas";
import { raster } from "../../painter";
import { colors } from "../../theme";
import { lock, type Choice } from "./choice";
import { softmax } from "./maps";

const HIGH = 24;
const LEAST_CELL = 1;

export interface Explained {
  readonly row: number;
  readonly query: Float32Array;
  readonly keys: readonly Float32Array[];
  readonly products: readonly Float32Array[];
  readonly scores: Float32Array;
  readonly weights: Float32Array;
}

export function explain({ maps, layer, heads, rows, columns, locked }: Choice): Explained {
  const line = locked?.side === "row" ? locked.index : Math.min(1, rows.tokens.length - 1);
  const row = rows.tokens[line]?.[0] ?? 0;
  const head = heads[0]!;
  const query = maps.query(layer, head, row);
  const all = maps.keys(layer, head);
  const keys = columns.tokens.map(([column]) => all.subarray(column! * maps.width, (column! + 1) * maps.width));
  const scores = maps.scores(layer, head, row);
  const weights = softmax(scores);
  const pick = (values: Float32Array) => Float32Array.from(columns.tokens, ([column]) => values[column!]!);
  const products = keys.map((key) => key.map((value, d) => value * query[d]!));
  return { row, query, keys, products, scores: pick(scores), weights: pick(weights) };
}

export function Neuron({ choice }: { choice: Choice }) {
  const { maps, layer, heads, rows, columns } = choice;
  const found = useMemo(() => explain(choice), [choice]);
  const [element, width] = useWidth<HTMLTableCellElement>();
  const [at, point] = useState<{ column: number; d: number } | null>(null);
  const size = maps.width;
  const strip = Math.max(size * LEAST_CELL, width - 8);
  const strongest = largest([found.query]);
  const strongestKey = largest(found.keys);
  const strongestProduct = largest(found.products);
  const line = rows.tokens.findIndex(([token]) => token === found.row);
  const hover = (list: "keys" | "products" | null) => ({
    onPointerMove: (event: PointerEvent) => {
      const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
      const d = Math.floor(((event.clientX - box.left) / box.width) * size);
      const column = list ? Math.floor((event.clientY - box.top) / HIGH) : -1;
      point(d >= 0 && d < size && column < found.keys.length ? { column, d } : null);
    },
    onPointerLeave: () => point(null),
  });
  return (
    <div>
      <div class="choices">
        <label>
          <span class="muted">Token that looks</span>
          <select value={line} onChange={(event) => lock({ side: "row", index: Number(event.currentTarget.value) }, choice)}>
            {rows.names.map((name, index) => (
              <option key={index} value={index}>
                {index} {name}
              </option>
            ))}
          </select>
        </label>
        <span class="muted">
          score = {maps.raw.bias ? "q · k × scale + position bias" : "q · k × scale"}, scale {maps.raw.scale!.toPrecision(4)}; layer {layer}, head {heads[0]}
        </span>
      </div>
      <div class="wide" tabIndex={0} role="region" aria-label="Query, keys, products, scores and weights">
        <table class="neuron">
          <thead>
            <tr>
              <th scope="col">looked at</th>
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
                q of {rows.names[line]}
              </th>
              <td class="strip" ref={element}>
                <Strip rows={[found.query]} most={strongest} width={strip} label="The query" canvas={hover(null)} />
              </td>
              <td colSpan={3} class="muted value" role="status">
                {at ? cell(found, at, columns.names) : "Point at a cell for its numbers."}
              </td>
            </tr>
          </thead>
          <tbody>
            {columns.names.map((name, index) => (
              <tr key={index} style={{ height: `${HIGH}px` }} data-index={index}>
                <th scope="row" class="token" dir="auto">
                  {name}
                </th>
                {index === 0 && (
                  <>
                    <td class="strip" rowSpan={columns.names.length}>
                      <Strip rows={found.keys} most={strongestKey} width={strip} label="The keys" canvas={hover("keys")} />
                    </td>
                    <td class="strip" rowSpan={columns.names.length}>
                      <Strip rows={found.products} most={strongestProduct} width={strip} label="Query times keys" canvas={hover("products")} />
                    </td>
                  </>
                )}
                <td class="number">{Number.isFinite(found.scores[index]) ? found.scores[index]!.toFixed(3) : "hidden"}</td>
                <td class="number">
                  <span class="bar" style={{ width: `${100 * found.weights[index]!}%`, background: "var(--accent)" }} />
                  {found.weights[index]!.toFixed(3)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted note">
        Blue is above zero, orange below; strongest: q {strongest.toFixed(2)}, k {strongestKey.toFixed(2)}, q × k {strongestProduct.toFixed(2)}.
      </p>
    </div>
  );
}

function cell(found: Explained, { column, d }: { column: number; d: number }, names: readonly string[]) {
  const q = found.query[d]!.toFixed(3);
  if (column < 0) return `dimension ${d}: q ${q}`;
  return `${names[column]}, dimension ${d}: q ${q} × k ${found.keys[column]![d]!.toFixed(3)} = ${found.products[column]![d]!.toFixed(3)}`;
}

interface StripProps {
  readonly rows: readonly Float32Array[];
  readonly most: number;
  readonly width: number;
  readonly label: string;
  readonly canvas: object;
}

function Strip({ rows, most, width, label, canvas }: StripProps) {
  const draw = (context: CanvasRenderingContext2D) => {
    const { accent, other } = colors.get();
    const across = rows[0]?.length ?? 1;
    context.imageSmoothingEnabled = false;
    for (const [color, sign] of [[accent, 1], [other, -1]] as const) {
      const values = new Float32Array(rows.length * across);
      rows.forEach((row, i) => row.forEach((value, d) => (values[i * across + d] = Math.max(0, (sign * value) / most) ** 2)));
      context.drawImage(raster(values, across, color), 0, 0, width, rows.length * HIGH);
    }
    for (let i = 0; i <= rows.length; i++) context.clearRect(0, i * HIGH - 3, width, 6);
  };
  return <Canvas width={width} height={rows.length * HIGH} inputs={[rows, most]} draw={draw} label={label} canvas={canvas} />;
}

function largest(rows: readonly Float32Array[]): number {
  let most = 1e-9;
  for (const row of rows) for (const value of row) most = Math.max(most, Math.abs(value));
  return most;
}
