// The verdict and the three ways as a picture for a file, and their numbers as rows. Knows no page.
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { largest, passedOf, said, strips, summary, type Faithfulness } from "./payload";

const WIDTH = 900;
const MARGIN = 20;
const LETTER = 7.8; // pixels of a letter in the fixed-width face
const ROOM = 3; // thresholds that a bar has room for

export function drawing(payload: Faithfulness): Drawing {
  const { grounds, verdict } = payload;
  const { accent, other, muted, ink, rule } = colors.get();
  const strokes: ((painter: Painter) => void)[] = [];
  let y = MARGIN + 10;
  const write = (text: string, style: Parameters<Painter["text"]>[3] = {}, step = 24) => {
    const top = y;
    strokes.push((painter) => painter.text(text, MARGIN, top, style));
    y += step;
  };
  if (!grounds) payload.notes.forEach((note) => write(note, { size: 12 }));
  else write(`${verdict ? `${verdict.verdict} (${passedOf(verdict)} of ${verdict.checks.length} passed): ` : ""}${summary(payload)}`, { size: 18, bold: true }, 30);
  if (verdict) write(verdict.means, { color: muted }, 28);
  for (const check of verdict?.checks ?? []) {
    const top = y;
    const share = Math.max(0, Math.min(1, (check.value ?? 0) / (ROOM * check.threshold)));
    strokes.push((painter) => {
      painter.text(`${check.passed ? "✓" : "✕"} ${check.name}`, MARGIN, top);
      painter.rect(240, top - 7, 330, 14, rule, 0.5);
      painter.rect(240, top - 7, 330 * share, 14, check.passed ? accent : other, 0.8);
      painter.line(350, top - 10, 350, top + 10, ink, 1, 2);
      painter.text(`${said(check.value)} of ${check.threshold.toFixed(2)} or more`, 590, top);
    });
    y += 26;
  }
  const rows = grounds ? strips(grounds) : [];
  const most = grounds ? largest(grounds, rows) : 1;
  for (const row of rows) {
    y += 10;
    write(row.name, { bold: true });
    let x = MARGIN;
    row.shares.forEach((share, place) => {
      const token = grounds!.tokens[place] ?? "";
      const width = token.length * LETTER + 8;
      if (x + width > WIDTH - MARGIN) [x, y] = [MARGIN, y + 24];
      const [left, top] = [x, y];
      strokes.push((painter) => {
        painter.rect(left, top - 10, width - 2, 20, share < 0 ? other : accent, 0.6 * Math.min(1, Math.abs(share) / most));
        painter.text(token, left + 3, top, { mono: true });
      });
      x += width;
    });
    y += 24;
  }
  return { width: WIDTH, height: y + MARGIN, draw: (painter) => strokes.forEach((stroke) => stroke(painter)) };
}

export function table(payload: Faithfulness): Table {
  const { grounds, verdict } = payload;
  const rows: (string | number)[][] = [];
  if (grounds) rows.push(["answer", grounds.label, grounds.probability, "", ""]);
  if (verdict) rows.push(["verdict", verdict.verdict, passedOf(verdict), verdict.needed, ""]);
  for (const check of verdict?.checks ?? []) {
    rows.push(["test", check.name, check.value ?? "", check.threshold, check.passed ? "passed" : "failed"]);
    for (const [name, value] of Object.entries(check.numbers)) rows.push([check.name, name, value ?? "", "", ""]);
  }
  for (const row of grounds ? strips(grounds) : []) row.values.forEach((value, place) => rows.push([row.name, grounds!.tokens[place] ?? "", value, "", ""]));
  return { headers: ["what", "name", "number", "threshold", "result"], rows };
}
