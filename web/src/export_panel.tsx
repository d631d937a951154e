// What surrounds every view: the lines that reproduce it, and the files to keep. Knows no view.
import { useState } from "preact/hooks";
import { exported } from "./api";
import { countFormulas, csv, download, json, neutralizeFormulas, png, svg } from "./files";
import { formatRoute, currentRoute } from "./route";
import type { Payload, View } from "./view";

interface Props {
  readonly view: View;
  readonly payload: Payload;
  /** The arguments the studio asked with; none in an exported file. */
  readonly args?: Readonly<Record<string, string>>;
}

export function Frame({ view, payload, args }: Props) {
  const { Show } = view;
  return (
    <>
      <Show payload={payload} />
      <section class="keep" aria-labelledby="keep">
        <h2 id="keep">Keep or reproduce this</h2>
        <Files view={view} payload={payload} {...(args && { args })} />
        <Code title="Command line" text={payload.cli} />
        <Code title="Python" text={payload.python} />
      </section>
    </>
  );
}

function Files({ view, payload, args }: Props) {
  const [said, say] = useState("");
  const [exact, setExact] = useState(false);
  const name = `regard-${view.name}`;
  /** What it returns is told besides. */
  type Action = () => string | void | Promise<void>;
  const table = () => {
    const found = view.table(payload, currentRoute.get());
    const formulas = exact ? 0 : countFormulas(found);
    download(csv(formulas ? neutralizeFormulas(found) : found), `${name}.csv`, "text/csv");
    if (!formulas) return "";
    return `An apostrophe was put before ${formulas} ${formulas === 1 ? "cell" : "cells"} that a spreadsheet would take for a formula.`;
  };
  const kinds: [string, string, Action][] = [
    ["SVG", "picture as SVG", () => download(svg(view.drawing(payload, currentRoute.get())), `${name}.svg`, "image/svg+xml")],
    ["PNG", "picture as PNG", async () => download(await png(view.drawing(payload, currentRoute.get())), `${name}.png`, "image/png")],
    ["CSV", "numbers shown as CSV", table],
    ["JSON", "numbers shown as JSON", () => download(json(view.table(payload, currentRoute.get())), `${name}.json`, "application/json")],
    ["Link", "copy the address of this very view", async () => copy(addressOf(view, args))],
  ];
  if (args) {
    const page = async () =>
      download(await exported(view.name, { ...args, place: formatRoute(currentRoute.get()) }), `${name}.html`, "text/html");
    kinds.unshift(["HTML", "the whole view in one file that works offline", page]);
  }
  const act = (title: string, action: Action) => {
    say("");
    Promise.resolve()
      .then(action)
      .then((besides) => say([title === "Link" ? "Link copied." : `${title} file made.`, besides].filter(Boolean).join(" ")))
      .catch((error: unknown) => say(error instanceof Error ? error.message : String(error)));
  };
  return (
    <div class="files">
      {kinds.map(([title, about, action]) => (
        <button key={title} type="button" title={about} onClick={() => act(title, action)}>
          {title}
        </button>
      ))}
      <label title="Otherwise a CSV cell that a spreadsheet would take for a formula gets an apostrophe before it.">
        <input type="checkbox" checked={exact} onChange={(event) => setExact(event.currentTarget.checked)} /> exact CSV cells
      </label>
      <span role="status" class="muted">
        {said}
      </span>
    </div>
  );
}

/** A link that says all: also what was asked with and not typed, such as the model, which another studio begins with otherwise. */
function addressOf(view: View, args: Props["args"]): string {
  const parameters = Object.entries({ ...args, ...currentRoute.get().parameters }).filter(([, value]) => value !== "");
  const [page] = location.href.split("#");
  return `${page}${formatRoute({ view: view.name, parameters: Object.fromEntries(parameters) })}`;
}

function Code({ title, text }: { title: string; text: string }) {
  const [said, say] = useState("Copy");
  const press = () =>
    copy(text)
      .then(() => say("Copied"))
      .catch(() => say("Select and copy by hand"));
  return (
    <div class="code">
      <h3>{title}</h3>
      <button type="button" onClick={press} aria-label={`Copy the ${title} line`}>
        {said}
      </button>
      <pre tabIndex={0} aria-label={title}>{text}</pre>
    </div>
  );
}

async function copy(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
}
