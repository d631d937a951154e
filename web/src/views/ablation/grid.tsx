// Layers by heads: how much the answers change when each is taken out alone, and which are out now.
import { useState } from "preact/hooks";
import { setParameters, currentRoute } from "../../route";
import { allBack, goneAt, named, range, toggleHead, toggleHeads, toggleLayer } from "./choice";
import { alone, heat, nats, strongest, unit, type Ablation } from "./payload";

const STRONGEST = 5;

export function Grid({ payload }: { payload: Ablation }) {
  const here = currentRoute.use();
  const gone = goneAt(payload, here);
  const single = alone(payload, here);
  const { depth, heads } = payload.model;
  const [focus, setFocus] = useState(0);
  const live = Boolean(payload.studio);
  const most = strongest(payload);
  const move = (event: KeyboardEvent) => {
    const at = Number((event.target as HTMLElement).dataset["at"] ?? "NaN");
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads }[event.key];
    if (step === undefined || Number.isNaN(at) || at + step < 0 || at + step >= depth * heads) return;
    event.preventDefault();
    setFocus(at + step);
    (event.currentTarget as Element).querySelector<HTMLElement>(`[data-at="${at + step}"]`)?.focus();
  };
  const press = (layer: number, head: number) => {
    setFocus(layer * heads + head);
    if (live) return toggleHead(payload, gone, layer, head);
    setParameters({ alone: single?.layer === layer && single.head === head ? "" : `${layer}.${head}` });
  };
  const ranked = [...payload.sweep.heads].sort((a, b) => b.strength - a.strength).slice(0, STRONGEST);
  const places = payload.sweep.places.length;
  return (
    <section aria-labelledby="ablation-heads">
      <h2 id="ablation-heads">Heads</h2>
      <p class="muted ablation-note">
        The colour is what changes when a head alone is missing: {payload.sweep.measure === "divergence" ? "the divergence of the answers in nats" : "the change of the value"}
        {places < payload.effects.length ? `, the mean of ${places} of the ${payload.effects.length} tokens` : places > 1 ? `, the mean of ${places} places` : ""}. {live ? "Press a head to take it out, a layer's number for all its heads." : "Press a head to see it missing alone."}
      </p>
      <div class="wide">
        <div class="ablation-grid" role="group" aria-label="Heads" style={{ gridTemplateColumns: `auto repeat(${heads}, 40px) auto` }} onKeyDown={move}>
          <span class="ablation-at">layer</span>
          {range(heads).map((head) => (
            <span key={head} class="ablation-at ablation-across">
              {head}
            </span>
          ))}
          <span />
          {range(depth).map((layer) => [
            live ? (
              <button key={`l${layer}`} type="button" class="ablation-all" aria-label={`All heads of layer ${layer}`} onClick={() => toggleHeads(payload, gone, layer)}>
                {layer}
              </button>
            ) : (
              <span key={`l${layer}`} class="ablation-at">
                {layer}
              </span>
            ),
            ...range(heads).map((head) => {
              const at = layer * heads + head;
              const strength = payload.sweep.heads[at]!.strength;
              const out = gone.heads.has(`${layer}.${head}`) || gone.layers.has(layer);
              const pressed = live ? gone.heads.has(`${layer}.${head}`) : single?.layer === layer && single.head === head;
              return (
                <button
                  key={at}
                  type="button"
                  data-at={at}
                  class={out && !single ? "ablation-out" : ""}
                  aria-pressed={pressed}
                  tabIndex={at === focus ? 0 : -1}
                  aria-label={`${brief(strength, most)} Head ${layer}.${head}${out ? ", out" : ""}`}
                  title={`${layer}.${head} alone: ${nats(strength)} ${unit(payload)}`}
                  style={{ "--tint": `${Math.round(45 * heat(payload, strength))}%` }}
                  onClick={() => press(layer, head)}
                >
                  {brief(strength, most)}
                </button>
              );
            }),
            live ? (
              <button key={`s${layer}`} type="button" class="ablation-skip" aria-pressed={gone.layers.has(layer)} aria-label={`skip layer ${layer}`} title={`Leave out layer ${layer} altogether`} onClick={() => toggleLayer(payload, gone, layer)}>
                skip
              </button>
            ) : (
              <span key={`s${layer}`} class="ablation-at">{gone.layers.has(layer) ? "left out" : ""}</span>
            ),
          ])}
        </div>
      </div>
      <p class="ablation-scale muted" aria-hidden="true">
        0 <span class="ablation-ramp" /> {nats(strongest(payload))} {unit(payload)}, the strongest of these
      </p>
      <p class="ablation-gone" role="status">
        {single ? (
          <>
            Shown: without head {single.layer}.{single.head} alone.{" "}
            <button type="button" onClick={() => setParameters({ alone: "" })}>
              as asked
            </button>
          </>
        ) : gone.heads.size || gone.layers.size ? (
          <>
            Out: {[gone.heads.size && `heads ${named(payload, gone.heads)}`, gone.layers.size && `layers ${[...gone.layers].join(",")}`].filter(Boolean).join(" and ")}.{" "}
            {live && (
              <button type="button" onClick={() => allBack(payload)}>
                all back
              </button>
            )}
          </>
        ) : (
          "Nothing is out: this is what the model says."
        )}
      </p>
      <h3>What matters most alone</h3>
      <table class="ablation-table">
        <thead>
          <tr>
            <th scope="col">head</th>
            <th scope="col">{payload.sweep.measure}</th>
            <th scope="col">distance</th>
            <th scope="col">other answer at</th>
          </tr>
        </thead>
        <tbody>
          {ranked.map((one) => (
            <tr key={`${one.layer}.${one.head}`}>
              <th scope="row">
                {one.layer}.{one.head}
              </th>
              <td>{nats(one.strength)}</td>
              <td>{one.distance.toFixed(3)}</td>
              <td>
                {one.changed} of {places}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** In the room of a cell; where all are small, by their powers of ten. */
function brief(strength: number, most: number): string {
  if (most < 0.05 && strength > 0) return strength.toExponential(0);
  if (strength >= 10) return strength.toFixed(0);
  return strength >= 0.995 ? strength.toFixed(1) : strength < 0.005 ? "0" : strength.toFixed(2).slice(1);
}
