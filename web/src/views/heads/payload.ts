// What the library says of a model's heads.
import type { Payload } from "../../view";

export interface Finding {
  readonly pattern: string;
  readonly tokens: number;
  readonly score: number | null;
  readonly chance: number | null;
  readonly p: number | null;
  readonly corrected: number | null;
}

export interface Example {
  readonly text: number;
  readonly row: number;
  readonly column: number;
  readonly weights: readonly number[];
}

export interface Head {
  readonly layer: number;
  readonly head: number;
  readonly pattern: string | null;
  readonly nearest: string;
  readonly findings: readonly Finding[];
  readonly examples: readonly Example[];
}

export interface Census extends Payload {
  readonly model: string;
  readonly layers: number;
  readonly heads_each: number;
  readonly read: number;
  /** What was left out or cut, in words. */
  readonly notes: readonly string[];
  readonly correction: string;
  readonly level: number;
  readonly excess: number;
  readonly about: Readonly<Record<string, string>>;
  readonly counts: Readonly<Record<string, number>>;
  readonly heads: readonly Head[];
  readonly texts: Readonly<Record<string, readonly string[]>>;
}

export function excess({ score, chance }: Finding): number {
  return score === null || chance === null ? 0 : score - chance;
}

export function findingOf(head: Head, pattern: string): Finding {
  return head.findings.find((finding) => finding.pattern === pattern)!;
}
