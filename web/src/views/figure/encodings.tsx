// Heat maps of positional encodings: sinusoids as wide and long as is wanted, in both layouts, and the model's own.
import { useMemo } from "preact/hooks";
import { setParameters, currentRoute } from "../../route";
import { HeatMap } from "./heat";
import type { FigurePayload } from "./payload";
import { learned, LONGEST, SHOWN, sinusoids, wanted, WIDEST } from "./positions";

const HIGH = 9; // pixels of a row

export function Encodings({ payload }: { payload: FigurePayload }) {
  const { width, count, layout } = wanted(currentRoute.use());
  const matrix = useMemo(() => sinusoids({ width, count, layout }), [width, count, layout]);
  const own = useMemo(() => learned(payload), [payload]);
  const high = count > 24 ? HIGH : 14;
  return (
    <section aria-labelledby="encodings">
      <h2 id="encodings">Positional encodings</h2>
      <p>
        Row t is added to the vector of the token at place t: p<sub>t</sub>[2k] = sin(w<sub>k</sub> t), p<sub>t</sub>[2k+1] = cos(w<sub>k</sub> t), w<sub>k</sub> = 1 / 10000
        <sup>2k/d</sup>. Interleaved puts each sine beside its cosine, as the paper has it; halves put all sines first: the same numbers in another order.
      </p>
      <div class="choices">
        <label>
          Dimension
          <input type="number" min={2} max={WIDEST} step={2} value={width} onChange={(event) => setParameters({ width: event.currentTarget.value })} />
        </label>
        <label>
          Positions
          <input type="number" min={1} max={LONGEST} value={count} onChange={(event) => setParameters({ count: event.currentTarget.value })} />
        </label>
        <fieldset>
          <legend>Layout</legend>
          {(["interleaved", "halves"] as const).map((one) => (
            <button key={one} type="button" aria-pressed={layout === one} onClick={() => setParameters({ layout: one })}>
              {one}
            </button>
          ))}
        </fieldset>
        <fieldset>
          <legend>Sizes of the lectures</legend>
          {SHOWN.map((one) => (
            <button key={one.width} type="button" onClick={() => setParameters({ width: String(one.width), count: String(one.count), layout: one.layout })}>
              {one.width} × {one.count}
            </button>
          ))}
        </fieldset>
      </div>
      <HeatMap matrix={matrix} label={`Sinusoids, ${count} positions × ${width} dimensions, ${layout}`} highest={high} full={1} />
      <p class="muted">
        In Python: <code>regard.interpret.figure.positional_encoding.positional_encoding({width}, {count}, "{layout}")</code>
      </p>
      {own ? (
        <>
          <h3>
            What {payload.model.name} has learned instead: the first {own.rows.length} positions × {own.across}
          </h3>
          <HeatMap matrix={own} label={`Learned positions of ${payload.model.name}, ${own.rows.length} × ${own.across}`} highest={HIGH} />
        </>
      ) : (
        <p class="muted">
          {payload.positions ? `${payload.model.name} adds sinusoids, ${payload.positions.arrangement}, ${payload.positions.shape[1]} wide.` : `${payload.model.name} adds no positions.`}
        </p>
      )}
    </section>
  );
}
