// Files the user can keep of what is shown: SVG, PNG, CSV and JSON. Knows formats, no view.
import { canvasPainter, svgPainter } from "./painter";
import { colors } from "./theme";
import type { Drawing, Table } from "./view";

const LARGEST = 16000; // pixels of a side that browsers still make a canvas of

export function download(content: string | Blob, name: string, type: string): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function svg({ width, height, draw }: Drawing): string {
  const { page, ink } = colors.get();
  const { painter, markup } = svgPainter(ink);
  painter.rect(0, 0, width, height, page);
  draw(painter);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">\n${markup()}\n</svg>\n`;
}

export function png({ width, height, draw }: Drawing): Promise<Blob> {
  const scale = Math.min(2, LARGEST / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const context = canvas.getContext("2d");
  if (!context) return Promise.reject(new Error("this browser cannot draw"));
  context.scale(scale, scale);
  const { page, ink } = colors.get();
  const painter = canvasPainter(context, ink);
  painter.rect(0, 0, width, height, page);
  draw(painter);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large to make"))), "image/png");
  });
}

// How a cell begins that spreadsheets take for a formula, which can fetch addresses and run commands. A number is none.
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

function isFormula(value: string | number): boolean {
  return typeof value === "string" && FORMULA.test(value) && !NUMBER.test(value);
}

/** How many cells a spreadsheet would take for formulas. */
export function countFormulas({ headers, rows }: Table): number {
  return [headers, ...rows].reduce((count, row) => count + row.filter(isFormula).length, 0);
}

/** The same table with an apostrophe before every cell that a spreadsheet would take for a formula: there it means text. */
export function neutralizeFormulas({ headers, rows }: Table): Table {
  const neutral = <T extends string | number>(value: T) => (isFormula(value) ? `'${value}` : value);
  return { headers: headers.map((header) => String(neutral(header))), rows: rows.map((row) => row.map(neutral)) };
}

export function csv({ headers, rows }: Table): string {
  const cell = (value: string | number) => {
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headers, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

export function json({ headers, rows }: Table): string {
  const records = rows.map((row) => Object.fromEntries(headers.map((header, number) => [header, row[number]])));
  return JSON.stringify(records, null, 1) + "\n";
}
