// What the colors of a map mean: what is computed, which weights get no color and full color, and the threshold.
import { plural } from "../../format";
import { setParameters } from "../../route";
import type { Selection, Source } from "./maps";

const ABOUT: Partial<Record<Source, string>> = {
  mean: "The mean weight over all heads of the layer.",
  max: "The largest weight over all heads of the layer; rows do not add up to 1.",
  rollout:
    "Rollout multiplies the layers up to this one, each the mean of its heads mixed half and half with the token " +
    "itself, as the residual connection does: how much of each input token has reached each token.",
  flow:
    "Flow treats the same mixed weights as the capacities of pipes: how much can flow from each input token through " +
    "all layers to each token of the last one, at most.",
};

export function AboutSource({ selection: { source } }: { selection: Selection }) {
  return ABOUT[source] ? <p class="muted">{ABOUT[source]}</p> : null;
}

const rangeOf = ({ maps, layer, heads, ...options }: Selection) => maps.range(layer, heads[0]!, options);

/** Which weights have no color and full color, in words. */
export function aboutRange(selection: Selection): string {
  const { source, threshold } = selection;
  const [low, high] = rangeOf(selection);
  const scale =
    source === "heads"
      ? "full color: a weight of 1"
      : low > 0
        ? `color from ${low.toFixed(3)} to ${high.toFixed(3)}, the smallest and largest value shown`
        : `full color: ${high.toFixed(3)}, the largest value shown`;
  return threshold ? `${scale}; weights below ${threshold} are not drawn` : scale;
}

export function RangeLegend({ selection }: { selection: Selection }) {
  const [low, high] = rangeOf(selection);
  const digits = selection.source === "heads" ? 0 : 3;
  const text = aboutRange(selection);
  return (
    <p class="attention-legend muted">
      <span>{low.toFixed(digits)}</span>
      <span class="attention-ramp" aria-hidden="true" />
      <span>{high.toFixed(digits)}</span>
      <span>
        {text[0]!.toUpperCase() + text.slice(1)}
        {selection.hidesSpecial && "; attention to special tokens is hidden, so that rows may add up to less than 1"}
        {selection.source === "heads" &&
          selection.heads.length > 1 &&
          ` in each of ${plural(selection.heads.length, "head")}`}
        .
      </span>
    </p>
  );
}

const STEPS = 100;

/** Hides weights below a value; the slider ends at the weight with full color. */
export function Threshold({ selection }: { selection: Selection }) {
  const { threshold } = selection;
  const [, high] = rangeOf(selection);
  const digits = high > 0.5 ? 2 : 4;
  return (
    <label>
      Hide below
      <input
        type="range"
        min={0}
        max={high.toFixed(digits)}
        step={(high / STEPS).toFixed(digits + 1)}
        value={threshold}
        onInput={(event) =>
          setParameters({
            min: Number(event.currentTarget.value)
              ? String(Number(Number(event.currentTarget.value).toFixed(digits)))
              : "",
          })
        }
      />
      <output>{threshold}</output>
    </label>
  );
}
