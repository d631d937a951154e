// The trace of a beam search or of sampling (src/regard/inference/generation/trace.py describes each part).

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

export interface Expansion {
  readonly node: number;
  readonly candidates: readonly Candidate[];
  readonly cut: readonly { readonly by: string; readonly count: number; readonly share: number }[];
}

export interface Step {
  readonly step: number;
  readonly choices: readonly Expansion[];
  readonly died: readonly number[];
}

export interface Row {
  readonly row: number;
  readonly steps: readonly Step[];
  readonly results: readonly {
    readonly node: number;
    readonly text: string;
    readonly log_probability: number | null;
    readonly score: number | null;
    readonly finished: boolean;
  }[];
}

export interface Trace {
  readonly method: "beam" | "sample";
  readonly about: Readonly<Record<string, unknown>>;
  readonly rows: readonly Row[];
}

export const probabilityPercent = (logProbability: number | null, digits = 1) => `${(100 * (logProbability === null ? 0 : Math.exp(logProbability))).toFixed(digits)}%`;

export const logNumber = (value: number | null) => (value === null ? "-∞" : value.toFixed(3));

/** The name of a setting as on the command line. */
export const optionName = (name: string) => name.replaceAll("_", "-");

/** What became of a candidate. */
export function outcome({ fate, by, child }: Candidate): string {
  const words = { kept: "kept", ended: "end of text", cut: "cut", passed: "not selected" }[fate];
  if (by !== undefined) return `${words} by ${optionName(by)}`;
  return child === undefined ? words : `${words} as node ${child}`;
}

/** All candidates of a row with their step and the node they continue. */
export function allCandidates(row: Row) {
  return row.steps.flatMap(({ step, choices }) => choices.flatMap(({ node, candidates }) => candidates.map((candidate) => ({ step, node, candidate }))));
}
