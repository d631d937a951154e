// Layers by heads: the effect of removing each head alone, and which heads are removed.
import { useState } from "preact/hooks";
import { DataTable } from "../../components";
import { range } from "../../format";
import { currentRoute, onArrowKeys, setParameters } from "../../route";
import { describeRemoved, formatStrength, headColor, removedAt, setRemoved, singleHead, strongest, toggleHeads, toggleLayer, unit, type AblationPayload } from "./selection";

const RANKED = 5;

export function HeadGrid({ payload }: { payload: AblationPayload }) {
  const route = currentRoute.use();
  const removed = removedAt(payload, route);
  const single = singleHead(payload, route);
  const { num_layers: depth, num_heads: heads } = payload.model;
  const [focused, setFocused] = useState(0);
  const live = Boolean(payload.studio);
  const most = strongest(payload);
  const positions = payload.sweep.targets.length;
  const measured = positions < payload.effects.length ? `, the mean over ${positions} of the ${payload.effects.length} tokens` : positions > 1 ? `, the mean over ${positions} positions` : "";
  const move = (event: KeyboardEvent) => {
    const at = Number((event.target as HTMLElement).dataset["at"] ?? "NaN");
    const grid = event.currentTarget as Element;
    onArrowKeys({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads }, (step) => {
      if (Number.isNaN(at) || at + step < 0 || at + step >= depth * heads) return;
      setFocused(at + step);
      grid.querySelector<HTMLElement>(`[data-at="${at + step}"]`)?.focus();
    })(event);
  };
  const cell = (layer: number, head: number) => {
    const at = layer * heads + head;
    const name = `${layer}.${head}`;
    const strength = payload.sweep.heads[at]!.strength;
    const isSingle = single?.layer === layer && single.head === head;
    const out = removed.heads.has(name) || removed.layers.has(layer);
    const press = () => {
      setFocused(at);
      if (live) return toggleHeads(payload, removed, [name]);
      setParameters({ alone: isSingle ? "" : name });
    };
    return (
      <button
        key={at}
        type="button"
        data-at={at}
        class={out && !single ? "ablation-out" : ""}
        aria-pressed={live ? removed.heads.has(name) : isSingle}
        tabIndex={at === focused ? 0 : -1}
        aria-label={`${brief(strength, most)} Head ${name}${out ? ", removed" : ""}`}
        title={`${name} alone: ${formatStrength(strength)} ${unit(payload)}`}
        style={{ "--tint": `${Math.round(45 * headColor(payload, strength))}%` }}
        onClick={press}
      >
        {brief(strength, most)}
      </button>
    );
  };
  const rowStart = (layer: number) =>
    live ? (
      <button key={`l${layer}`} type="button" class="ablation-all" aria-label={`All heads of layer ${layer}`} onClick={() => toggleHeads(payload, removed, range(heads).map((head) => `${layer}.${head}`))}>
        {layer}
      </button>
    ) : (
      <span key={`l${layer}`} class="ablation-at">
        {layer}
      </span>
    );
  const rowEnd = (layer: number) =>
    live ? (
      <button
        key={`s${layer}`}
        type="button"
        class="ablation-skip"
        aria-pressed={removed.layers.has(layer)}
        aria-label={`skip layer ${layer}`}
        title={`Skip layer ${layer}`}
        onClick={() => toggleLayer(payload, removed, layer)}
      >
        skip
      </button>
    ) : (
      <span key={`s${layer}`} class="ablation-at">
        {removed.layers.has(layer) ? "skipped" : ""}
      </span>
    );
  return (
    <section aria-labelledby="ablation-heads">
      <h2 id="ablation-heads">Heads</h2>
      <p class="muted ablation-note">
        The color is the effect of removing a head alone: {payload.sweep.measure === "divergence" ? "the divergence of the predictions in nats" : "the change of the value"}
        {measured}. {live ? "Press a head to remove it, or a layer number for all its heads." : "Press a head to see the effect of removing it alone."}
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
          {range(depth).map((layer) => [rowStart(layer), ...range(heads).map((head) => cell(layer, head)), rowEnd(layer)])}
        </div>
      </div>
      <p class="ablation-scale muted" aria-hidden="true">
        0 <span class="ablation-ramp" /> {formatStrength(most)} {unit(payload)}, the strongest
      </p>
      <p class="ablation-removed" role="status">
        {single ? (
          <>
            Shown: without head {single.layer}.{single.head} alone.{" "}
            <button type="button" onClick={() => setParameters({ alone: "" })}>
              as requested
            </button>
          </>
        ) : removed.heads.size || removed.layers.size ? (
          <>
            Removed: {describeRemoved(payload, removed)}.{" "}
            {live && (
              <button type="button" onClick={() => setRemoved(payload, new Set(), new Set())}>
                restore all
              </button>
            )}
          </>
        ) : (
          "Nothing is removed: these are the model's own predictions."
        )}
      </p>
      <h3>Strongest heads, each removed alone</h3>
      <DataTable
        class="data-table ablation-table"
        headers={["head", payload.sweep.measure, "distance", "prediction changes at"]}
        rows={[...payload.sweep.heads]
          .sort((a, b) => b.strength - a.strength)
          .slice(0, RANKED)
          .map((one) => [`${one.layer}.${one.head}`, formatStrength(one.strength), one.distance.toFixed(3), `${one.changed} of ${positions}`])}
      />
    </section>
  );
}

/** A strength that fits into a cell; powers of ten if all are small. */
function brief(strength: number, most: number): string {
  if (most < 0.05 && strength > 0) return strength.toExponential(0);
  if (strength >= 10) return strength.toFixed(0);
  return strength >= 0.995 ? strength.toFixed(1) : strength < 0.005 ? "0" : strength.toFixed(2).slice(1);
}
