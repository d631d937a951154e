// The predictions at every position before and after: in the text, and one position in full. And what the route
// selects.
import { inStudio } from "../../api";
import { DataTable, Select } from "../../components";
import { layerNumbers, percent, range } from "../../format";
import { currentRoute, integerParameter, type Route, setParameters } from "../../route";
import type { AblationEffect, HeadEffect, HeadSweep, OutputChange } from "../../types";
import type { ViewOf } from "../../view";

/** Names and descriptions of the ways to predict. */
const MASKED_LM: Readonly<Record<string, readonly [string, string]>> = {
  masked: ["every token, masked in turn", "each token is masked in turn and predicted"],
  plain: ["every token, unmasked", "each token is predicted without masking it"],
  blanks: ["the blanks", "only the blanks are predicted"],
};
const CAUSAL_LM: typeof MASKED_LM = {
  plain: ["after every token", "below each token: the prediction from the tokens before it"],
  blanks: ["at the end", "only the token after the text is predicted"],
};

export function Positions({ payload }: { payload: AblationPayload }) {
  const route = currentRoute.use();
  const shown = shownEffects(payload, route);
  const selected = selectedPosition(payload, route);
  const intact = isIntact(payload, route);
  const changed = shown.filter((one) => one && one.before !== one.after).length;
  const ways = payload.model.task === "next" ? CAUSAL_LM : MASKED_LM;
  const options = Object.fromEntries(payload.modes.map((way) => [way, ways[way]?.[0] ?? way]));
  return (
    <section aria-labelledby="ablation-predictions">
      <h2 id="ablation-predictions">Predictions</h2>
      {payload.modes.length > 1 && (
        <div class="choices">
          {inStudio() && (
            <Select
              label="Predict"
              options={options}
              value={payload.at}
              onSelect={(at) => setParameters({ text: payload.texts[0] ?? "", at, place: "" })}
            />
          )}
          <span class="muted">{ways[payload.at]?.[1]}</span>
        </div>
      )}
      {payload.effects.length > 1 && payload.model.problem_type !== "regression" && !intact && (
        <p class="ablation-sum">
          The prediction changes at {changed} of {shown.filter(Boolean).length}{" "}
          {payload.positions.length ? "tokens" : "positions"}.
        </p>
      )}
      {payload.positions.length ? (
        <TokenButtons payload={payload} shown={shown} selected={selected} intact={intact} />
      ) : (
        <PositionButtons payload={payload} selected={selected} />
      )}
      <PositionDetails payload={payload} one={shown[selected]} intact={intact} />
    </section>
  );
}

interface TokenButtonsProps {
  readonly payload: AblationPayload;
  readonly shown: readonly (ShownEffect | undefined)[];
  readonly selected: number;
  readonly intact: boolean;
}

function TokenButtons({ payload, shown, selected, intact }: TokenButtonsProps) {
  const tokens = payload.positions.includes(payload.tokens.length) ? [...payload.tokens, "…"] : payload.tokens;
  const prediction = (one: ShownEffect, output: string, when: "before" | "after", bold: boolean) => {
    const change = changeOf(one.effect, output);
    return (
      <span class={bold ? "ablation-prediction ablation-other" : "ablation-prediction"}>
        {output} {change && <small>{formatOutput(payload, change[when])}</small>}
      </span>
    );
  };
  return (
    <>
      <ol class="ablation-text" aria-label="Tokens with predictions" dir="auto">
        {tokens.map((token, spot) => {
          const at = payload.positions.indexOf(spot);
          const one = shown[at];
          if (!one)
            return (
              <li key={spot} class={payload.special[spot] ? "ablation-plain ablation-special" : "ablation-plain"}>
                {token}
              </li>
            );
          return (
            <li key={spot}>
              <button
                type="button"
                aria-pressed={at === selected}
                data-place={at}
                style={{ "--tint": `${Math.round(45 * textColor(payload, one.strength))}%` }}
                title={`${formatStrength(one.strength)} ${unit(payload)}`}
                onClick={() => setParameters({ place: String(at) })}
              >
                <span class="ablation-token">{token}</span>
                {prediction(one, one.before, "before", false)}
                {!intact && prediction(one, one.after, "after", one.before !== one.after)}
              </button>
            </li>
          );
        })}
      </ol>
      <p class="muted ablation-note">
        {intact
          ? "Below each token: the most probable prediction."
          : "Below each token: the most probable prediction before and after; bold if it changes. The color is the " +
            `${payload.sweep.measure}, full at ${fullStrength(payload).toPrecision(1)} ${unit(payload)}.`}
      </p>
    </>
  );
}

function PositionButtons({ payload, selected }: { payload: AblationPayload; selected: number }) {
  if (payload.effects.length < 2) return <blockquote dir="auto">{payload.texts.join("\n")}</blockquote>;
  return (
    <div class="choices">
      <span class="group" role="group" aria-label="Position">
        {payload.effects.map((effect, at) => (
          <button
            key={at}
            type="button"
            aria-pressed={at === selected}
            onClick={() => setParameters({ place: String(at) })}
          >
            {effect.target}
          </button>
        ))}
      </span>
    </div>
  );
}

function PositionDetails({
  payload,
  one,
  intact,
}: {
  payload: AblationPayload;
  one: ShownEffect | undefined;
  intact: boolean;
}) {
  if (!one) return <p class="muted">This token was not part of the sweep over single heads.</p>;
  const { effect, before, after } = one;
  const isValue = payload.model.problem_type === "regression";
  const measures =
    `${formatStrength(one.strength)} ${unit(payload)}` +
    (effect && !isValue ? `, distance ${effect.distance.toFixed(3)}` : "");
  const verdict = isValue
    ? ""
    : before === after
      ? `${before} stays the most probable; `
      : `${before} becomes ${after}; `;
  const name = payload.positions.length ? one.target.replace(/^\d+ /, "") : one.target;
  return (
    <div class="ablation-one">
      <h3>
        {payload.effects.length > 1 && <>At “{name}”: </>}
        {!intact && (
          <span class="ablation-verdict">
            {verdict}
            <span>{measures}</span>
          </span>
        )}
      </h3>
      {effect &&
        (intact ? (
          <ChangeTable payload={payload} title="" changes={effect.likeliest} intact />
        ) : (
          <ChangeTables payload={payload} effect={effect} />
        ))}
    </div>
  );
}

function ChangeTables({
  payload,
  effect: { likeliest, successors, changes },
}: {
  payload: AblationPayload;
  effect: AblationEffect;
}) {
  const outputs = new Set([...likeliest, ...successors, ...changes].map((one) => one.output));
  const single = likeliest.length <= 2 || outputs.size === likeliest.length;
  const tables = single
    ? { "": likeliest }
    : { "Most probable before": likeliest, "Most probable after": successors, "Largest changes": changes };
  return (
    <div class="ablation-columns">
      {Object.entries(tables).map(([title, rows]) => (
        <ChangeTable key={title} payload={payload} title={title} changes={rows} />
      ))}
    </div>
  );
}

interface ChangeTableProps {
  readonly payload: AblationPayload;
  readonly title: string;
  readonly changes: readonly OutputChange[];
  /** Nothing is removed: only one column. */
  readonly intact?: boolean;
}

function ChangeTable({ payload, title, changes, intact = false }: ChangeTableProps) {
  const { problem_type, task } = payload.model;
  const bars = problem_type !== "regression";
  const columns = intact ? (["before"] as const) : (["before", "after"] as const);
  const cell = (one: OutputChange, when: "before" | "after") => ({
    title: String(one[when]),
    content: (
      <span class="ablation-share">
        {bars && (
          <span class="ablation-bar" aria-hidden="true">
            <span class={`ablation-${when}`} style={{ width: `${100 * one[when]}%` }} />
          </span>
        )}
        <span class="ablation-digits">{formatOutput(payload, one[when])}</span>
      </span>
    ),
  });
  return (
    <DataTable
      class="data-table ablation-table ablation-changes"
      caption={title}
      headers={[
        task === "fill" || task === "next" ? "word" : bars ? "label" : "value",
        ...(intact ? [bars ? "probability" : "number"] : columns),
      ]}
      rows={changes.map((one) => [one.output, ...columns.map((when) => cell(one, when))])}
    />
  );
}

export type AblationPayload = ViewOf<"ablate"> & { readonly sweep: HeadSweep };

export interface Removed {
  /** Names such as 3.1. */
  readonly heads: ReadonlySet<string>;
  readonly layers: ReadonlySet<number>;
}

/** What is removed: in the studio by the route, which is ahead of the result; in an exported page by the payload. */
export function removedAt(payload: AblationPayload, { parameters }: Route): Removed {
  if (!inStudio() || !("text" in parameters)) {
    return {
      heads: new Set(payload.heads.map(([layer, head]) => `${layer}.${head}`)),
      layers: new Set(payload.layers),
    };
  }
  const { num_layers: depth, num_heads: heads } = payload.model;
  const numberOf = (layer: string) => (Number(layer) < 0 ? depth + 1 : 0) + Number(layer);
  const removed = new Set<string>();
  for (const name of (parameters["heads"] ?? "").split(",")) {
    const [layer, head] = name.trim().split(".");
    if (!layer || !head) continue;
    for (const i of layer === "*" ? layerNumbers(depth) : [numberOf(layer)])
      for (const j of head === "*" ? range(heads) : [Number(head)]) removed.add(`${i}.${j}`);
  }
  const layers = (parameters["layers"] ?? "").split(",").filter((name) => name.trim());
  return { heads: removed, layers: new Set(layers.map(numberOf)) };
}

/** Removes heads, or restores them if all of them are removed. */
export function toggleHeads(payload: AblationPayload, removed: Removed, names: readonly string[]): void {
  const heads = new Set(removed.heads);
  const restore = names.every((name) => heads.has(name));
  for (const name of names) restore ? heads.delete(name) : heads.add(name);
  setRemoved(payload, heads, removed.layers);
}

export function toggleLayer(payload: AblationPayload, removed: Removed, layer: number): void {
  const layers = new Set(removed.layers);
  if (!layers.delete(layer)) layers.add(layer);
  setRemoved(payload, removed.heads, layers);
}

export function setRemoved(payload: AblationPayload, heads: ReadonlySet<string>, layers: ReadonlySet<number>): void {
  // With the text: a route with some arguments must have all.
  const [text = "", second = ""] = payload.texts;
  setParameters({
    text,
    text_b: second,
    heads: headNames(payload, heads),
    layers: [...layers].sort((a, b) => a - b).join(","),
  });
}

export function headNames({ model }: AblationPayload, heads: ReadonlySet<string>): string {
  return layerNumbers(model.num_layers)
    .flatMap((layer) => {
      const removed = range(model.num_heads).filter((head) => heads.has(`${layer}.${head}`));
      return removed.length === model.num_heads ? [`${layer}.*`] : removed.map((head) => `${layer}.${head}`);
    })
    .join(",");
}

/** What is removed in words, or "". */
export function describeRemoved(payload: AblationPayload, { heads, layers }: Removed): string {
  return [heads.size && `heads ${headNames(payload, heads)}`, layers.size && `layers ${[...layers].join(",")}`]
    .filter(Boolean)
    .join(" and ");
}

/** The head whose removal alone is shown; only in an exported page, which has no server to remove others. */
export function singleHead(payload: AblationPayload, { parameters }: Route): HeadEffect | undefined {
  if (inStudio()) return undefined;
  return payload.sweep.ranked.find((head) => `${head.layer}.${head.head}` === parameters["alone"]);
}

export function isIntact(payload: AblationPayload, route: Route): boolean {
  return !payload.heads.length && !payload.layers.length && !singleHead(payload, route);
}

/** What is shown at one position; without `effect` if one head alone is removed. */
export interface ShownEffect {
  readonly target: string;
  readonly before: string;
  readonly after: string;
  readonly strength: number;
  readonly effect: AblationEffect | undefined;
}

export function shownEffects(payload: AblationPayload, route: Route): readonly (ShownEffect | undefined)[] {
  const single = singleHead(payload, route);
  return payload.effects.map((effect) => {
    const { target, before } = effect;
    if (!single) return { target, before, after: effect.after, strength: effect.strength, effect };
    const at = payload.sweep.targets.indexOf(target);
    return at < 0
      ? undefined
      : { target, before, after: single.after[at] ?? "", strength: single.strengths[at] ?? 0, effect: undefined };
  });
}

/** The position shown in full: by default the one that changed most. */
export function selectedPosition(payload: AblationPayload, route: Route): number {
  const strengths = shownEffects(payload, route).map((one) => one?.strength ?? -1);
  return integerParameter(
    route.parameters,
    "place",
    payload.effects.length,
    Math.max(0, strengths.indexOf(Math.max(...strengths))),
  );
}

const FULL = 2; // nats with the full color

export const unit = ({ sweep }: AblationPayload) => (sweep.measure === "divergence" ? "nats" : "change");

export function strongest({ sweep }: AblationPayload): number {
  return Math.max(...sweep.ranked.map((head) => head.strength), 1e-12);
}

/** The strength with the full color in the text. */
export function fullStrength(payload: AblationPayload): number {
  return payload.sweep.measure === "divergence"
    ? FULL
    : Math.max(strongest(payload), ...payload.effects.map((effect) => effect.strength));
}

/** Color from 0 to 1 of an effect in the text: small ones stay visible, and two ablations are comparable. */
export const textColor = (payload: AblationPayload, strength: number) =>
  Math.min(1, Math.sqrt(strength / fullStrength(payload)));

/** Color from 0 to 1 of a head, relative to the strongest one. */
export const headColor = (payload: AblationPayload, strength: number) => Math.sqrt(strength / strongest(payload));

export function formatOutput(payload: AblationPayload, value: number): string {
  // no −0.000
  return payload.model.problem_type === "regression" ? (Number(value.toFixed(3)) || 0).toFixed(3) : percent(value);
}

export function formatStrength(value: number): string {
  return value === 0 ? "0" : value < 0.001 ? value.toExponential(1) : value.toFixed(3);
}

/** The probabilities of an output before and after, if they are known. */
export function changeOf(effect: AblationEffect | undefined, output: string): OutputChange | undefined {
  return effect && [...effect.likeliest, ...effect.successors].find((change) => change.output === output);
}
