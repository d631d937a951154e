// A file of the user's as the view's sentences: read in the browser, so that the server opens no file for anybody.
// Knows files and the address; of a file too large for a request it draws lines by lot, and says so.
import { useState } from "preact/hooks";
import { navigate, currentRoute } from "../../route";

const ROOM = 300_000; // characters, as the server takes
const LARGEST = 200_000_000; // bytes

/** Only the studio can ask again; an exported file shows what it has. */
const studio = document.getElementById("regard")?.textContent?.startsWith('{"view":"studio"') ?? false;

export function OpenFile({ view }: { view: string }) {
  const [said, say] = useState("");
  if (!studio) return null;
  const read = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > LARGEST) return say(`${file.name} is larger than 200 MB; use the command line for it.`);
    const { lines, total } = fitting((await file.text()).split(/\r?\n/).filter((line) => line.trim()));
    const left = total - lines.length;
    say(left ? `${lines.length.toLocaleString("en")} of ${total.toLocaleString("en")} lines were drawn by lot to fit ${ROOM.toLocaleString("en")} characters.` : `${total.toLocaleString("en")} lines of ${file.name}.`);
    const { parameters } = currentRoute.get();
    navigate({ view, parameters: { ...parameters, texts: lines.join("\n") } }, { step: true });
  };
  return (
    <p class="open">
      <label>
        Your own file (text, TSV, CSV or JSON lines): <input type="file" accept=".txt,.tsv,.csv,.jsonl,.json,text/*" onChange={(event) => void read(event.currentTarget.files?.[0])} />
      </label>{" "}
      <span role="status" class="muted">
        {said}
      </span>
    </p>
  );
}

/** As many lines as fit, the first always among them since it may name the columns; the same lot every time. */
export function fitting(all: readonly string[], room = ROOM): { lines: readonly string[]; total: number } {
  const size = all.reduce((sum, line) => sum + line.length + 1, 0);
  if (size <= room) return { lines: all, total: all.length };
  const places = all.map((_, place) => place);
  const next = generator(0);
  for (let place = places.length - 1; place > 1; place--) {
    const other = 1 + Math.floor(next() * place);
    [places[place], places[other]] = [places[other]!, places[place]!];
  }
  let left = room;
  const kept: number[] = [];
  for (const place of places) {
    left -= all[place]!.length + 1;
    if (left < 0) break;
    kept.push(place);
  }
  return { lines: kept.sort((a, b) => a - b).map((place) => all[place]!), total: all.length };
}

/** Numbers from 0 to 1 by a seed (a linear congruential generator with Knuth's MMIX constants). */
function generator(seed: number): () => number {
  let state = BigInt(seed);
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number(state >> 11n) / 2 ** 53;
  };
}
