// Numbers and tokens as text.

/** An integer with commas between thousands. */
export const count = (value: number) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

export const plural = (value: number, noun: string) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** A probability as a percentage; never rounded to 0% or 100%. */
export function percent(probability: number): string {
  if (probability < 1 && probability >= 0.9995) return ">99.9%";
  if (probability > 0 && probability < 0.0005) return "<0.1%";
  return `${(100 * probability).toFixed(1)}%`;
}

export const fixedPercent = (probability: number, digits: number) => `${(100 * probability).toFixed(digits)}%`;

/** A number with a true minus sign; there is no −0. With `plus`, positive numbers have a sign too. */
export function decimal(value: number, digits = 3, plus = false): string {
  const magnitude = Math.abs(value).toFixed(digits);
  return `${Number(magnitude) === 0 ? "" : value < 0 ? "−" : plus ? "+" : ""}${magnitude}`;
}

export const round = (value: number, digits: number) => Number(value.toFixed(digits));

const WHITESPACE: Record<string, string> = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };

/** A token with visible whitespace. */
export const visible = (text: string) => text.replace(/[ \n\t\r]/g, (character) => WHITESPACE[character]!);

/** A token in quotation marks; byte escapes stay as they are. */
export const quoted = (text: string) => JSON.stringify(text).replaceAll("\\\\x", "\\x");

/** The first characters of a text, with an ellipsis if it is longer. */
export function truncate(text: string, length: number): string {
  const characters = [...text];
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : text;
}

/** A slice by Unicode characters, as Python counts them. */
export const slice = (text: string, start: number, end?: number) => [...text].slice(start, end).join("");

export const shape = (sizes: readonly number[]) => sizes.map(count).join(" × ");

export const range = (length: number) => Array.from({ length }, (_, i) => i);

/** The numbers of a model's layers: from 1, since 0 is the embeddings. */
export const layerNumbers = (layers: number) => range(layers).map((index) => index + 1);

/** The largest absolute value, ignoring infinities; at least a tiny number, so that one can divide by it. */
export function largestMagnitude(...vectors: readonly ArrayLike<number>[]): number {
  let largest = 1e-12;
  for (const vector of vectors)
    for (let i = 0; i < vector.length; i++)
      if (Number.isFinite(vector[i])) largest = Math.max(largest, Math.abs(vector[i]!));
  return largest;
}
