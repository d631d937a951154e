// What the model says at every place, before and after: on the text, and of one place in full.
import { setParameters, currentRoute, integerParameter, type Route } from "../../route";
import { fullest, nats, percent, shareOf, shownPlaces, tint, unit, whole, type Change, type Effect, type Shown, type Ablation } from "./payload";

const ASKS: Readonly<Record<string, string>> = {
  masked: "each token is hidden in turn, and the model says what it would put there",
  plain: "the model says what stands at each token, which it sees",
  blanks: "only what the model is asked for",
};
const GPT: Readonly<Record<string, string>> = {
  plain: "below each token what the model expected there, having read all before it",
  blanks: "only what follows the text",
};

/** The place that is looked at in full: by default the one that changed most. */
export function chosenPlace(payload: Ablation, here: Route): number {
  const strengths = shownPlaces(payload, here).map((one) => one?.strength ?? -1);
  return integerParameter(here.parameters, "place", payload.effects.length, Math.max(0, strengths.indexOf(Math.max(...strengths))));
}

export function Places({ payload }: { payload: Ablation }) {
  const here = currentRoute.use();
  const shown = shownPlaces(payload, here);
  const number = chosenPlace(payload, here);
  const changed = shown.filter((one) => one && one.before !== one.after).length;
  const known = shown.filter(Boolean).length;
  const asks = payload.model.task === "next" ? GPT : ASKS;
  return (
    <section aria-labelledby="ablation-answers">
      <h2 id="ablation-answers">Answers</h2>
      {payload.studio && payload.ways.length > 1 ? (
        <div class="choices">
          <label>
            Ask
            <select value={payload.at} onChange={(event) => setParameters({ text: payload.texts[0] ?? "", at: event.currentTarget.value, place: "" })}>
              {payload.ways.map((way) => (
                <option key={way} value={way}>
                  {payload.model.task === "next" ? { plain: "after every token", blanks: "at the end" }[way] : { masked: "every token, hidden in turn", plain: "every token as it stands", blanks: "the blanks" }[way]}
                </option>
              ))}
            </select>
          </label>
          <span class="muted">{asks[payload.at]}</span>
        </div>
      ) : (
        payload.ways.length > 1 && <p class="muted">{asks[payload.at]}</p>
      )}
      {payload.effects.length > 1 && payload.model.kind !== "value" && !whole(payload, here) && (
        <p class="ablation-sum">
          The answer is another one at {changed} of {known} {payload.spots.length ? "tokens" : "places"}.
        </p>
      )}
      {payload.spots.length ? <Text payload={payload} shown={shown} number={number} untouched={whole(payload, here)} /> : <Buttons payload={payload} number={number} />}
      <One payload={payload} one={shown[number]} untouched={whole(payload, here)} />
    </section>
  );
}

interface TextProps {
  readonly payload: Ablation;
  readonly shown: readonly (Shown | undefined)[];
  readonly number: number;
  readonly untouched: boolean;
}

function Text({ payload, shown, number, untouched }: TextProps) {
  const behind = payload.spots.includes(payload.tokens.length);
  const tokens = behind ? [...payload.tokens, "…"] : payload.tokens;
  return (
    <>
      <ol class="ablation-text" aria-label="Tokens with what the model says there" dir="auto">
        {tokens.map((token, spot) => {
          const at = payload.spots.indexOf(spot);
          const one = shown[at];
          if (!one) return <li key={spot} class={payload.special[spot] ? "ablation-plain ablation-special" : "ablation-plain"}>{token}</li>;
          const other = one.before !== one.after;
          return (
            <li key={spot}>
              <button
                type="button"
                aria-pressed={at === number}
                data-place={at}
                style={{ "--tint": `${Math.round(45 * tint(payload, one.strength))}%` }}
                title={`${nats(one.strength)} ${unit(payload)}`}
                onClick={() => setParameters({ place: String(at) })}
              >
                <span class="ablation-token">{token}</span>
                <span class="ablation-said">
                  <Said payload={payload} one={one} output={one.before} when="before" />
                </span>
                {!untouched && (
                  <span class={other ? "ablation-said ablation-other" : "ablation-said"}>
                    <Said payload={payload} one={one} output={one.after} when="after" />
                  </span>
                )}
              </button>
            </li>
          );
        })}
      </ol>
      <p class="muted ablation-note">
        {untouched
          ? "Below each token: what the model finds likeliest there."
          : `Below each token: the likeliest before, then after; bold where it is another one. The colour is the ${payload.sweep.measure}, full at ${fullest(payload).toPrecision(1)} ${unit(payload)}.`}
      </p>
    </>
  );
}

function Said({ payload, one, output, when }: { payload: Ablation; one: Shown; output: string; when: "before" | "after" }) {
  const share = shareOf(one.effect, output);
  return (
    <>
      {output} {share && <small>{percent(payload, share[when])}</small>}
    </>
  );
}

function Buttons({ payload, number }: { payload: Ablation; number: number }) {
  if (payload.effects.length < 2) return <blockquote dir="auto">{payload.texts.join("\n")}</blockquote>;
  return (
    <div class="choices">
      <span class="group" role="group" aria-label="Place">
        {payload.effects.map((effect, at) => (
          <button key={at} type="button" aria-pressed={at === number} onClick={() => setParameters({ place: String(at) })}>
            {effect.place}
          </button>
        ))}
      </span>
    </div>
  );
}

function One({ payload, one, untouched }: { payload: Ablation; one: Shown | undefined; untouched: boolean }) {
  if (!one) return <p class="muted">This token was not asked for when each head was taken out alone.</p>;
  const { effect } = one;
  const told = `${nats(one.strength)} ${unit(payload)}` + (effect && payload.model.kind !== "value" ? `, distance ${effect.distance.toFixed(3)}` : "");
  const verdict = payload.model.kind === "value" ? "" : one.before === one.after ? `${one.before} stays the likeliest; ` : `${one.before} becomes ${one.after}; `;
  const name = payload.spots.length ? one.place.replace(/^\d+ /, "") : one.place;
  return (
    <div class="ablation-one">
      <h3>
        {payload.effects.length > 1 && <>At “{name}”: </>}
        {!untouched && (
          <span class="ablation-verdict">
            {verdict}
            <span>{told}</span>
          </span>
        )}
      </h3>
      {effect && (untouched ? <Changes payload={payload} title="" changes={effect.likeliest} untouched /> : <Effects payload={payload} effect={effect} />)}
    </div>
  );
}

function Effects({ payload, effect }: { payload: Ablation; effect: Effect }) {
  const few = effect.likeliest.length <= 2 || new Set([...effect.likeliest, ...effect.successors, ...effect.changes].map((one) => one.output)).size === effect.likeliest.length;
  return (
    <div class="ablation-columns">
      <Changes payload={payload} title={few ? "" : "Likeliest before"} changes={effect.likeliest} />
      {!few && <Changes payload={payload} title="Likeliest after" changes={effect.successors} />}
      {!few && <Changes payload={payload} title="Changed most" changes={effect.changes} />}
    </div>
  );
}

interface ChangesProps {
  readonly payload: Ablation;
  readonly title: string;
  readonly changes: readonly Change[];
  readonly untouched?: boolean;
}

/** Before and after; where nothing is out these are one. */
function Changes({ payload, title, changes, untouched = false }: ChangesProps) {
  const bars = payload.model.kind !== "value";
  const columns = untouched ? (["before"] as const) : (["before", "after"] as const);
  return (
    <table class="ablation-table ablation-changes">
      {title && <caption>{title}</caption>}
      <thead>
        <tr>
          <th scope="col">{payload.model.task === "fill" || payload.model.task === "next" ? "word" : bars ? "label" : "value"}</th>
          {columns.map((when) => (
            <th key={when} scope="col">
              {untouched ? (bars ? "probability" : "number") : when}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {changes.map((one, number) => (
          <tr key={number}>
            <th scope="row" dir="auto">
              {one.output}
            </th>
            {columns.map((when) => (
              <td key={when} title={String(one[when])}>
                <span class="ablation-share">
                  {bars && (
                    <span class="ablation-bar" aria-hidden="true">
                      <span class={`ablation-${when}`} style={{ width: `${100 * one[when]}%` }} />
                    </span>
                  )}
                  <span class="ablation-digits">{percent(payload, one[when])}</span>
                </span>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
