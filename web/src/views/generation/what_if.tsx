// What if the temperature or top-p were another? The candidates of a position, computed from the model's own
// probabilities.
import { currentRoute, setParameters } from "../../route";
import type { GeneratedToken } from "../../types";
import type { Run } from "./payload";

export interface WhatIf {
  readonly temperature: number;
  readonly topP: number;
}

/** The values that the route asks for; null if they are those that the text was generated with. */
export function whatIf({ settings, method }: Run, parameters: Readonly<Record<string, string>>): WhatIf | null {
  if (method === "beam") return null;
  const read = (name: string, least: number, most: number, otherwise: number) => {
    const value = Number(parameters[name] ?? Number.NaN);
    return value >= least && value <= most ? value : otherwise;
  };
  const [temperature, topP] = [
    read("if_temperature", 0, 2, settings.temperature),
    read("if_top_p", 0.01, 1, settings.top_p),
  ];
  return temperature === settings.temperature && topP === settings.top_p ? null : { temperature, topP };
}

/**
 * The token with the candidates at another temperature and top-p. Other filters are not applied. Candidates are exact
 * up to the sum over the tokens that are not listed, which are known in bins of 0.25 nats.
 */
export function reshape(token: GeneratedToken, { temperature, topP }: WhatIf): GeneratedToken {
  const listed = token.candidates.map((one) => Math.log(one.probability));
  const largest = Math.max(...listed);
  const weight = (value: number) =>
    temperature === 0 ? (value === largest ? 1 : 0) : Math.exp((value - largest) / temperature);
  const groups = [
    ...listed.map((value, index) => ({ index, size: 1, value })),
    ...token.tail.map(([size, value]) => ({ index: -1, size, value })),
  ].sort((a, b) => b.value - a.value || b.index - a.index);
  const sum = groups.reduce((total, { size, value }) => total + size * weight(value), 0);
  const scaled = (value: number) => weight(value) / sum;
  let [reached, nucleus, inNucleus] = [0, 0, 0];
  const found = new Map<number, { readonly cumulative: number; readonly kept: boolean }>();
  for (const { index, size, value } of groups) {
    const each = scaled(value);
    const kept =
      topP >= 1 ? size : reached >= topP || each === 0 ? 0 : Math.min(size, Math.ceil((topP - reached) / each));
    reached += size * each;
    nucleus += temperature === 0 && each === 0 ? 0 : kept;
    inNucleus += kept * each;
    if (index >= 0) found.set(index, { cumulative: reached, kept: kept > 0 });
  }
  const candidates = token.candidates.map((one, index) => {
    const [probability, { cumulative, kept }] = [scaled(listed[index]!), found.get(index)!];
    const removed = temperature === 0 && probability === 0 ? "temperature" : kept ? null : "top_p";
    return {
      ...one,
      scaled_probability: probability,
      cumulative_probability: Math.min(1, cumulative),
      sampling_probability: removed ? 0 : probability / inNucleus,
      removed_by: removed,
    };
  });
  return { ...token, candidates, nucleus_size: nucleus, nucleus_probability: Math.min(1, inNucleus) };
}

/** Sliders that reshape the candidates at once, without a request. */
export function WhatIfSliders({ run }: { run: Run }) {
  const { parameters } = currentRoute.use();
  if (run.method === "beam") return null;
  const asked = whatIf(run, parameters);
  const { temperature, topP } = asked ?? { temperature: run.settings.temperature, topP: run.settings.top_p };
  const others = [
    run.settings.top_k !== null && "top-k",
    run.settings.min_p > 0 && "min-p",
    run.settings.repetition_penalty !== 1 && "the repetition penalty",
  ].filter(Boolean);
  const slider = (name: string, label: string, value: number, min: number, max: number, step: number) => (
    <label>
      {label}
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-label={`What if: ${label}`}
        onInput={(event) => setParameters({ [name]: event.currentTarget.value })}
      />
      <output>{value}</output>
    </label>
  );
  return (
    <div class="generation-what-if">
      <div class="choices">
        <span class="muted">What if</span>
        {slider("if_temperature", "temperature", temperature, 0, 2, 0.05)}
        {slider("if_top_p", "top-p", topP, 0.01, 1, 0.01)}
        {asked && (
          <button type="button" onClick={() => setParameters({ if_temperature: "", if_top_p: "" })}>
            as generated
          </button>
        )}
      </div>
      {asked && (
        <p class="muted" role="status">
          Computed in the page; the text stays as it was generated. The tokens beyond those listed are known in bins of
          0.25 nats, so that probabilities are off by less than 1% of their value.
          {others.length > 0 && ` Without ${others.join(" and ")}.`}
        </p>
      )}
    </div>
  );
}
