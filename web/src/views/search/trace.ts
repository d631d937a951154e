// The document of a trace as the library writes it (src/regard/inference/generation/trace.py says what each part means).

export interface Candidate {
  readonly token: number;
  readonly text: string;
  readonly log_probability: number | null;
  readonly total: number | null;
  readonly fate: "kept" | "ended" | "cut" | "passed";
  readonly by?: string;
  readonly child?: number;
  readonly chance?: number;
}

export interface Choice {
  readonly node: number;
  readonly candidates: readonly Candidate[];
  readonly cut: readonly { readonly by: string; readonly count: number; readonly share: number }[];
}

export interface Step {
  readonly step: number;
  readonly choices: readonly Choice[];
  readonly died: readonly number[];
}

export interface Result {
  readonly node: number;
  readonly text: string;
  readonly log_probability: number | null;
  readonly score: number | null;
  readonly finished: boolean;
}

export interface Row {
  readonly row: number;
  readonly steps: readonly Step[];
  readonly results: readonly Result[];
}

export interface Trace {
  readonly method: "beam" | "sample";
  readonly about: Readonly<Record<string, unknown>>;
  readonly rows: readonly Row[];
}

const SIGNS: Record<string, string> = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };

/** White space as signs, for in a box it would not be seen. */
export const visible = (text: string) => text.replace(/[ \n\t\r]/g, (sign) => SIGNS[sign]!);

/** A token between quotation marks; the bytes of half a character stay as they are spelled. */
export const quoted = (text: string) => JSON.stringify(text).replaceAll("\\\\x", "\\x");

export const percent = (logProbability: number | null, digits = 1) =>
  `${(100 * (logProbability === null ? 0 : Math.exp(logProbability))).toFixed(digits)}%`;

export const decimal = (value: number | null) => (value === null ? "-∞" : value.toFixed(3));

/** A setting's name as it is typed on the command line. */
export const typed = (name: string) => name.replaceAll("_", "-");

export function fate(one: Candidate): string {
  const words = { kept: "kept", ended: "ended a text", cut: "cut", passed: "passed over" }[one.fate];
  if (one.by !== undefined) return `${words} by ${typed(one.by)}`;
  return one.child === undefined ? words : `${words} as node ${one.child}`;
}
