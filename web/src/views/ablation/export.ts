// Ablation as a picture for a file, and its numbers as rows. Knows no page.
import type { Route } from "../../route";
import type { Painter } from "../../painter";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import { goneAt, named } from "./choice";
import { alone, heat, percent, shareOf, shownPlaces, tint, unit, whole, type Ablation } from "./payload";

const CELL = { wide: 46, high: 26 };
const WIDTH = 940;
const MARGIN = 20;
const TOKEN = 62; // pixels for a token and the two words below it

export function drawing(payload: Ablation, here: Route): Drawing {
  const { depth, heads } = payload.model;
  const gone = goneAt(payload, here);
  const single = alone(payload, here);
  const look = colors.get();
  const strokes: ((painter: Painter) => void)[] = [];
  const out = single ? `head ${single.layer}.${single.head} alone` : [named(payload, gone.heads) && `heads ${named(payload, gone.heads)}`, gone.layers.size && `layers ${[...gone.layers].join(",")}`].filter(Boolean).join(" and ");
  strokes.push((painter) => painter.text(`${payload.model.name} ${out ? `without ${out}` : "as it is"}`, MARGIN, 24, { size: 15, bold: true }));
  strokes.push((painter) => painter.text(`each head taken out alone: ${payload.sweep.measure}${unit(payload) === "nats" ? " in nats" : ""}; × is out`, MARGIN, 46, { size: 12, color: look.muted }));
  const top = 80;
  for (let head = 0; head < heads; head++) strokes.push((painter) => painter.text(String(head), 70 + (head + 0.5) * CELL.wide, top - 10, { align: "center", size: 11, color: look.muted }));
  for (const one of payload.sweep.heads) {
    const [x, y] = [70 + one.head * CELL.wide, top + one.layer * CELL.high];
    const missing = gone.heads.has(`${one.layer}.${one.head}`) || gone.layers.has(one.layer);
    strokes.push((painter) => {
      painter.rect(x + 1, y + 1, CELL.wide - 2, CELL.high - 2, look.accent, 0.04 + 0.6 * heat(payload, one.strength));
      painter.text(`${missing && !single ? "× " : ""}${one.strength < 0.005 && one.strength > 0 ? one.strength.toExponential(0) : one.strength.toFixed(2)}`, x + CELL.wide / 2, y + CELL.high / 2, { align: "center", size: 11 });
      if (!one.head) painter.text(`layer ${one.layer}`, 62, y + CELL.high / 2, { align: "right", size: 11, color: look.muted });
    });
  }
  let [x, y] = [MARGIN, top + depth * CELL.high + 36];
  const shown = shownPlaces(payload, here);
  const untouched = whole(payload, here);
  const high = untouched ? TOKEN - 18 : TOKEN;
  shown.forEach((one, number) => {
    if (!one) return;
    const spot = payload.spots[number];
    const token = spot === undefined ? one.place : (payload.tokens[spot] ?? "…");
    const share = (output: string, when: "before" | "after") => {
      const found = shareOf(one.effect, output);
      return `${output} ${found ? percent(payload, found[when]) : ""}`.trim();
    };
    const lines = [token, share(one.before, "before"), ...(untouched ? [] : [share(one.after, "after")])];
    const width = 7 * Math.max(...lines.map((line) => line.length)) + 16;
    if (x + width > WIDTH - MARGIN) [x, y] = [MARGIN, y + high + 8];
    const [left, up] = [x, y];
    strokes.push((painter) => {
      painter.rect(left, up - 12, width - 4, high, look.accent, 0.04 + 0.6 * tint(payload, one.strength));
      painter.text(lines[0]!, left + 5, up, { mono: true, size: 13 });
      painter.text(lines[1]!, left + 5, up + 20, { size: 11 });
      if (lines[2]) painter.text(lines[2], left + 5, up + 38, { size: 11, bold: one.before !== one.after });
    });
    x += width;
  });
  y += high + 8;
  strokes.push((painter) => painter.text(untouched ? "below each: the likeliest" : "below each: the likeliest before, and after", MARGIN, y, { size: 12, color: look.muted }));
  return { width: Math.max(WIDTH, 90 + heads * CELL.wide), height: y + MARGIN, draw: (painter) => strokes.forEach((stroke) => stroke(painter)) };
}

export function table(payload: Ablation, here: Route): Table {
  const rows: (string | number)[][] = [];
  shownPlaces(payload, here).forEach((one) => {
    if (!one) return;
    const [old, now] = [shareOf(one.effect, one.before), shareOf(one.effect, one.after)];
    rows.push(["place", one.place, one.before, old?.before ?? "", one.after, now?.after ?? "", one.strength, one.effect?.distance ?? ""]);
    for (const change of one.effect?.likeliest ?? []) rows.push(["output", one.place, change.output, change.before, change.output, change.after, "", ""]);
  });
  for (const one of payload.sweep.heads) rows.push(["head", `${one.layer}.${one.head}`, "", "", "", "", one.strength, one.distance]);
  return { headers: ["what", "name", "before", "probability before", "after", "probability after", payload.sweep.measure, "distance"], rows };
}

