// A result with what surrounds it: its headline, and a menu with files to download and the commands that reproduce it.
import { useState } from "preact/hooks";
import { Menu } from "./menu";
import { pictureOf } from "./picture";
import { currentRoute, type Frame, formatRoute } from "./route";
import type { Payload, Table, View } from "./view";

const LONG = 110; // characters; a longer headline is smaller
const MAX_CANVAS = 16000; // pixels per side that browsers support

interface Props {
  readonly view: View;
  readonly payload: Payload;
  /** The arguments of the studio's request; undefined in an exported file. */
  readonly args?: Readonly<Record<string, string>>;
}

/** A result with its headline and the menu to share it; `frame` says how much of that is shown. */
export function ViewWithExports({ frame = "full", ...props }: Props & { frame?: Frame }) {
  const { view, payload } = props;
  const { Show } = view;
  const finding = view.finding?.(payload, currentRoute.use()) ?? "";
  return (
    <>
      <div class="headline">
        {frame === "full" && <Share {...props} />}
        {finding && (
          <h2 class={finding.length > LONG ? "finding long" : "finding"} dir="auto">
            {finding}
          </h2>
        )}
      </div>
      <Show payload={payload} />
    </>
  );
}

/** Files of the result, a link to it, and the lines that reproduce it. */
function Share(props: Props) {
  return (
    <Menu class="export-panel" label="Share">
      <h3>Download</h3>
      <Downloads {...props} />
      {props.payload.cli && <Code title="Command line" text={props.payload.cli} />}
      {props.payload.python && <Code title="Python" text={props.payload.python} />}
    </Menu>
  );
}

/** Creates a file; a returned text is added to the status line. */
type Action = () => string | void | Promise<void>;

function Downloads({ view, payload, args }: Props) {
  const [status, setStatus] = useState("");
  const [exact, setExact] = useState(false);
  const name = `regard-${view.name}`;
  const svg = () => pictureOf(view, payload, currentRoute.get());
  const table = () => view.table(payload, currentRoute.get());
  const saveCsv = () => {
    const { headers, rows } = table();
    const formulas = exact ? 0 : [headers, ...rows].flat().filter(isFormula).length;
    download(csv(formulas ? neutralizeFormulas({ headers, rows }) : { headers, rows }), `${name}.csv`, "text/csv");
    return formulas
      ? `An apostrophe was added before ${formulas} ${formulas === 1 ? "cell" : "cells"} that a spreadsheet would ` +
          "read as a formula."
      : "";
  };
  const savePage = () =>
    download(
      exportedPage({ ...payload, place: formatRoute(currentRoute.get()) }, view.title),
      `${name}.html`,
      "text/html",
    );
  const actions: [string, string, Action][] = [
    ...(args
      ? ([["HTML", "the whole view in one file that works offline", savePage]] as [string, string, Action][])
      : []),
    ["SVG", "picture as SVG", () => download(svg(), `${name}.svg`, "image/svg+xml")],
    ["PNG", "picture as PNG", async () => download(await png(svg()), `${name}.png`, "image/png")],
    ["CSV", "numbers as CSV", saveCsv],
    ["JSON", "numbers as JSON", () => download(json(table()), `${name}.json`, "application/json")],
    ["Link", "copy a permalink to this view", () => navigator.clipboard.writeText(permalink(view, args))],
  ];
  const run = (title: string, action: Action) => {
    setStatus("");
    Promise.resolve()
      .then(action)
      .then((message) =>
        setStatus([title === "Link" ? "Link copied." : `${title} file saved.`, message].filter(Boolean).join(" ")),
      )
      .catch((error: unknown) => setStatus(error instanceof Error ? error.message : String(error)));
  };
  return (
    <div class="files">
      {actions.map(([title, about, action]) => (
        <button key={title} type="button" title={about} onClick={() => run(title, action)}>
          {title}
        </button>
      ))}
      <label title="Otherwise a CSV cell that a spreadsheet would read as a formula gets a leading apostrophe.">
        <input type="checkbox" checked={exact} onChange={(event) => setExact(event.currentTarget.checked)} /> exact CSV
        cells
      </label>
      <span role="status" class="muted">
        {status}
      </span>
    </div>
  );
}

/** This document with the payload in place of the studio: one file that works offline and makes no requests. */
function exportedPage(payload: Payload, title: string): string {
  const page = document.documentElement.cloneNode(true) as HTMLElement;
  for (const name of page.getAttributeNames()) if (name !== "lang") page.removeAttribute(name);
  page.querySelector("title")!.textContent = `Regard: ${title}`;
  page.querySelector("#page")!.innerHTML = "<p>This page needs JavaScript.</p>";
  page.querySelector("#regard")!.textContent = JSON.stringify(payload).replaceAll("<", "\\u003c");
  const policy = page.querySelector("meta[http-equiv]")!;
  policy.setAttribute("content", policy.getAttribute("content")!.replace("connect-src 'self'", "connect-src 'none'"));
  return `<!doctype html>\n${page.outerHTML}\n`;
}

/** A link with all arguments, including defaults such as the model, which may differ in another studio. */
function permalink(view: View, args: Props["args"]): string {
  const parameters = Object.entries({ ...args, ...currentRoute.get().parameters }).filter(([, value]) => value !== "");
  const [page] = location.href.split("#");
  return `${page}${formatRoute({ view: view.name, parameters: Object.fromEntries(parameters) })}`;
}

function Code({ title, text }: { title: string; text: string }) {
  const [label, setLabel] = useState("Copy");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setLabel("Copied");
    } catch {
      setLabel("Select and copy by hand");
    }
  };
  return (
    <div class="code">
      <h3>{title}</h3>
      <button type="button" onClick={() => void copy()} aria-label={`Copy the ${title} line`}>
        {label}
      </button>
      <pre tabIndex={0} aria-label={title}>
        {text}
      </pre>
    </div>
  );
}

function download(content: string | Blob, name: string, type: string): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function png(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  await image.decode();
  URL.revokeObjectURL(image.src);
  const scale = Math.min(2, MAX_CANVAS / Math.max(image.width, image.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(image.width * scale);
  canvas.height = Math.ceil(image.height * scale);
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large for this browser"))),
      "image/png",
    );
  });
}

// First characters of cells that spreadsheets read as formulas, which can fetch addresses and run commands. Numbers are
// safe.
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

function isFormula(value: string | number): boolean {
  return typeof value === "string" && FORMULA.test(value) && !NUMBER.test(value);
}

/** The table with an apostrophe, which means text, before each cell that a spreadsheet would read as a formula. */
function neutralizeFormulas({ headers, rows }: Table): Table {
  const neutralize = <T extends string | number>(value: T) => (isFormula(value) ? `'${value}` : value);
  return { headers: headers.map((header) => String(neutralize(header))), rows: rows.map((row) => row.map(neutralize)) };
}

function csv({ headers, rows }: Table): string {
  const cell = (value: string | number) => {
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headers, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

function json({ headers, rows }: Table): string {
  const records = rows.map((row) => Object.fromEntries(headers.map((header, column) => [header, row[column]])));
  return JSON.stringify(records, null, 1) + "\n";
}
