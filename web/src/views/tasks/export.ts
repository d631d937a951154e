// The shown example as a picture for a file, and its numbers as rows. Knows no page.
import type { Route } from "../../route";
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { layerOf, strengths, strips } from "./evidence";
import { chosen, looked, percent, shares, summary, type Said, type Tasks } from "./payload";

const WIDTH = 900;
const MARGIN = 20;
const LINE = 24;
const LETTER = 7.8; // pixels of a letter in the fixed-width face
const LABELS = 220; // pixels for names before bars

type Stroke = (painter: Painter) => void;

export function drawing(payload: Tasks, here: Route): Drawing {
  const said = chosen(payload, here);
  const strokes: Stroke[] = [];
  let y = MARGIN + 10;
  const write = (text: string, style: Parameters<Painter["text"]>[3] = {}, step = LINE) => {
    const top = y;
    strokes.push((painter) => painter.text(text, MARGIN, top, style));
    y += step;
  };
  const { accent, other, muted } = colors.get();
  if (!said) {
    write(payload.notes[0] ?? "Nothing is shown.");
    return { width: WIDTH, height: y + MARGIN, draw: (painter) => strokes.forEach((stroke) => stroke(painter)) };
  }
  write(summary(said), { size: 20, bold: true }, 32);
  for (const text of said.texts) for (const line of wrapped(text)) write(line, { mono: true, color: muted }, 20);
  y += 8;
  for (const [name, share] of bars(said)) {
    const top = y;
    const room = WIDTH - 2 * MARGIN - LABELS - 70;
    strokes.push((painter) => {
      painter.text(clipped(name, 30), MARGIN, top);
      painter.rect(MARGIN + LABELS, top - 7, room * share, 14, accent, 0.8);
      painter.text(percent(share), WIDTH - MARGIN, top, { align: "right" });
    });
    y += LINE;
  }
  const evidence = looked(said, here);
  for (const row of evidence ? strips(evidence, layerOf(evidence, here.parameters)) : []) {
    y += 8;
    write(`${row.name}, ${evidence!.about}`, { bold: true });
    let x = MARGIN;
    strengths(row.values, evidence!.special).forEach((strength, number) => {
      const token = evidence!.tokens[number] ?? "";
      const width = token.length * LETTER + 8;
      if (x + width > WIDTH - MARGIN) {
        x = MARGIN;
        y += LINE;
      }
      const [left, top] = [x, y];
      strokes.push((painter) => {
        painter.rect(left, top - 10, width - 2, 20, strength < 0 ? other : accent, 0.55 * Math.abs(strength));
        painter.text(token, left + 3, top, { mono: true });
      });
      x += width;
    });
    y += LINE;
  }
  return { width: WIDTH, height: y + MARGIN, draw: (painter) => strokes.forEach((stroke) => stroke(painter)) };
}

function bars(said: Said): readonly (readonly [string, number])[] {
  const { entities, nbest } = said.prediction;
  if (entities) return entities.map((one) => [`${one.label} ${one.text}`, one.probability] as const);
  if (nbest) return nbest.map((one) => [one.answer || "no answer", one.probability] as const);
  return shares(said);
}

function wrapped(text: string): string[] {
  const letters = Array.from(text.replaceAll(/\s+/g, " "));
  const room = Math.floor((WIDTH - 2 * MARGIN) / LETTER);
  const lines: string[] = [];
  for (let start = 0; start < letters.length; start += room) lines.push(letters.slice(start, start + room).join(""));
  return lines;
}

function clipped(text: string, most: number): string {
  const letters = Array.from(text);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

export function table(payload: Tasks, here: Route): Table {
  const rows: (string | number)[][] = [];
  payload.predictions.forEach((said, number) => {
    const { value } = said.prediction;
    if (value !== undefined) rows.push([number, "prediction", "value", value]);
    for (const [name, share] of bars(said)) rows.push([number, "prediction", name, share]);
  });
  const said = chosen(payload, here);
  const evidence = said && looked(said, here);
  if (said && evidence) {
    const number = payload.predictions.indexOf(said);
    for (const row of strips(evidence, layerOf(evidence, here.parameters)))
      row.values.forEach((value, place) => rows.push([number, `${row.name} of ${evidence.about}`, evidence.tokens[place] ?? "", value]));
  }
  return { headers: ["example", "what", "name", "number"], rows };
}
