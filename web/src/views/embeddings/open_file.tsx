// Uses a local file as the sentences of a view. The browser reads it, so the server never opens a file for a client; of
// a file that is too large for a request, lines are sampled at random.
import { useState } from "preact/hooks";
import { inStudio } from "../../api";
import { count } from "../../format";
import { currentRoute, navigate } from "../../route";

const MAX_CHARACTERS = 300_000; // as on the server
const MAX_BYTES = 200_000_000;

/** With `whole`, all lines are used, also blank ones, which may separate sentences. */
export function OpenFile({ view, field, whole = false }: { view: string; field: string; whole?: boolean }) {
  const [status, setStatus] = useState("");
  if (!inStudio()) return null; // only the studio can make another request
  const read = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > MAX_BYTES) return setStatus(`${file.name} is larger than 200 MB; use the command line for it.`);
    if (whole && file.size > MAX_CHARACTERS)
      return setStatus(`${file.name} is larger than ${count(MAX_CHARACTERS)} bytes; use the command line for it.`);
    const all = (await file.text()).split(/\r?\n/).filter((line) => whole || line.trim());
    const lines = sampleLines(all);
    setStatus(
      lines.length < all.length
        ? `${count(lines.length)} of ${count(all.length)} lines were sampled at random to fit ` +
            `${count(MAX_CHARACTERS)} characters.`
        : `${count(all.length)} lines of ${file.name}.`,
    );
    navigate({ view, parameters: { ...currentRoute.get().parameters, [field]: lines.join("\n") } }, { push: true });
  };
  return (
    <p class="open">
      <label>
        Your own file (text, TSV, CSV or JSON lines):{" "}
        <input
          type="file"
          accept=".txt,.tsv,.csv,.jsonl,.json,text/*"
          onChange={(event) => void read(event.currentTarget.files?.[0])}
        />
      </label>{" "}
      <span role="status" class="muted">
        {status}
      </span>
    </p>
  );
}

/** As many lines as fit, in their order; always with the first, which may name the columns. The seed is fixed. */
function sampleLines(all: readonly string[]): readonly string[] {
  if (all.reduce((sum, line) => sum + line.length + 1, 0) <= MAX_CHARACTERS) return all;
  const order = all.map((_, line) => line);
  const random = generator(0);
  for (let i = order.length - 1; i > 1; i--) {
    const other = 1 + Math.floor(random() * i);
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  let left = MAX_CHARACTERS;
  const sampled: number[] = [];
  for (const line of order) {
    left -= all[line]!.length + 1;
    if (left < 0) break;
    sampled.push(line);
  }
  return sampled.sort((a, b) => a - b).map((line) => all[line]!);
}

/** Random numbers from 0 to 1: a linear congruential generator with Knuth's MMIX constants. */
function generator(seed: number): () => number {
  let state = BigInt(seed);
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number(state >> 11n) / 2 ** 53;
  };
}
