// Attention and attributions over the tokens of a text: a strip of tokens for each method, and a table of their values.
import type { ComponentChildren } from "preact";
import { DataTable } from "./components";
import { decimal } from "./format";
import type { Attribution } from "./types";

export interface TokenStrip {
  readonly name: string;
  readonly about: ComponentChildren;
  readonly values: readonly number[];
  /** From -1 to 1: the color of each token. */
  readonly colors: readonly number[];
  readonly signed: boolean;
}

interface Tokens {
  readonly tokens: readonly string[];
  readonly special: readonly boolean[];
  /** Index of the token whose attention is shown. */
  readonly token: number;
}

/** Explains integrated gradients; the scores add up to the difference of two logits, up to a small error. */
export function aboutIntegratedGradients(
  label: string,
  { baseline, value, baseline_value, completeness_error }: Attribution,
): ComponentChildren {
  const replacement =
    baseline === "black"
      ? "for a black image"
      : baseline === "zero"
        ? "with zero vectors for every word"
        : `with [${(baseline ?? "").toUpperCase()}] for every word`;
  return (
    <>
      contribution of each {baseline === "black" ? "patch" : "token"} to the logit of {label}, {decimal(value)};{" "}
      {replacement} it is {decimal(baseline_value ?? 0)} (the sum is off by{" "}
      <span class="strip-error">{Math.abs(completeness_error ?? 0).toExponential(0)}</span>)
    </>
  );
}

export const ABOUT_GRADIENT = "the same if the model were linear";

export function TokenStrips({
  strips,
  tokens,
  children,
  numbersOnly = false,
}: {
  strips: readonly TokenStrip[];
  tokens: Tokens;
  children: ComponentChildren;
  numbersOnly?: boolean;
}) {
  return (
    <>
      <div class="token-strips">
        {(numbersOnly ? [] : strips).map((strip) => (
          <div key={strip.name}>
            <h3>{strip.name}</h3>
            <p class="muted">{strip.about}</p>
            <p class="token-strip" dir="auto">
              {tokens.tokens.map((token, i) => {
                const [color, value] = [strip.colors[i] ?? 0, strip.values[i] ?? 0];
                const kinds = [
                  color < 0 && "strip-against",
                  tokens.special[i] && "strip-special",
                  i === tokens.token && !strip.signed && "strip-query",
                ];
                return (
                  <span
                    key={i}
                    class={kinds.filter(Boolean).join(" ")}
                    style={{ "--strength": `${Math.round(45 * Math.min(1, Math.abs(color)))}%` }}
                    title={decimal(value, 3, strip.signed)}
                  >
                    {token}
                  </span>
                );
              })}
            </p>
          </div>
        ))}
      </div>
      <p class="muted strip-key">
        <span class="strip-for">for</span> <span class="strip-against">against</span> {children}
      </p>
      <details>
        <summary>Numbers</summary>
        <DataTable
          class="data-table strip-table"
          label="Numbers"
          headers={["token", ...strips.map((strip) => strip.name)]}
          rows={tokens.tokens.map((token, i) => [
            token,
            ...strips.map((strip) => decimal(strip.values[i] ?? 0, 3, strip.signed)),
          ])}
        />
      </details>
    </>
  );
}
