// Heat maps of positional encodings: sinusoids of any size in both layouts, and the model's own.
import { useMemo } from "preact/hooks";
import { bytes, halves } from "../../binary";
import { ButtonGroup } from "../../components";
import { currentRoute, type Route, setParameters } from "../../route";
import { SignedHeatMap } from "./draw";
import type { FigurePayload, Matrix } from "./payload";

const ROW = 9; // pixels

export function Encodings({ payload }: { payload: FigurePayload }) {
  const { width, count, layout } = encodingOptions(currentRoute.use());
  const matrix = useMemo(() => sinusoids({ width, count, layout }), [width, count, layout]);
  const learned = useMemo(() => learnedEncodings(payload), [payload]);
  const { model, positions } = payload;
  const number = (label: string, name: string, value: number, limits: object) => (
    <label>
      {label}
      <input type="number" {...limits} value={value} onChange={(event) => setParameters({ [name]: event.currentTarget.value })} />
    </label>
  );
  return (
    <section aria-labelledby="encodings">
      <h2 id="encodings">Positional encodings</h2>
      <p>
        Row t is added to the vector of the token at position t: p<sub>t</sub>[2k] = sin(w<sub>k</sub> t), p<sub>t</sub>[2k+1] = cos(w<sub>k</sub> t), w<sub>k</sub> = 1 / 10000
        <sup>2k/d</sup>. The interleaved layout puts each sine next to its cosine, as in the paper; halves put all sines first: the same numbers in another order.
      </p>
      <div class="choices">
        {number("Dimension", "width", width, { min: 2, max: MAX_WIDTH, step: 2 })}
        {number("Positions", "count", count, { min: 1, max: MAX_COUNT })}
        <ButtonGroup title="Layout" options={["interleaved", "halves"]} value={layout} onSelect={(value) => setParameters({ layout: value })} />
        <fieldset>
          <legend>Sizes in the lectures</legend>
          {PRESETS.map((one) => (
            <button key={one.width} type="button" onClick={() => setParameters({ width: String(one.width), count: String(one.count), layout: one.layout })}>
              {one.width} × {one.count}
            </button>
          ))}
        </fieldset>
      </div>
      <SignedHeatMap matrix={matrix} label={`Sinusoids, ${count} positions × ${width} dimensions, ${layout}`} maxRow={count > 24 ? ROW : 14} full={1} />
      <p class="muted">
        In Python: <code>regard.interpret.figure.figure.positional_encoding({width}, {count}, "{layout}")</code>
      </p>
      {learned ? (
        <>
          <h3>
            The learned embeddings of {model.name}: the first {learned.rows.length} positions × {learned.width}
          </h3>
          <SignedHeatMap matrix={learned} label={`Learned positions of ${model.name}, ${learned.rows.length} × ${learned.width}`} maxRow={ROW} />
        </>
      ) : (
        <p class="muted">{positions ? `${model.name} adds sinusoids, ${positions.arrangement}, ${positions.shape[1]} wide.` : `${model.name} adds no positions.`}</p>
      )}
    </section>
  );
}

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
