// Heat maps of positional encodings: sinusoids of any size in both layouts, and the model's own.
import { useMemo } from "preact/hooks";
import { ButtonGroup } from "../../components";
import { currentRoute, setParameters } from "../../route";
import { SignedHeatMap } from "./draw";
import type { FigurePayload } from "./payload";
import { encodingOptions, learnedEncodings, MAX_COUNT, MAX_WIDTH, PRESETS, sinusoids } from "./positions";

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
        In Python: <code>regard.interpret.figure.positional_encoding.positional_encoding({width}, {count}, "{layout}")</code>
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
