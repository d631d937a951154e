// Ablation: remove heads and layers of a model, and see how its predictions change in the whole text.
import { range } from "../format";
import type { Painter } from "../painter";
import type { Route } from "../route";
import { colors } from "../theme";
import type { Drawing, Table, View } from "../view";
import "./ablation/ablation.css";
import { HeadGrid } from "./ablation/grid";
import { Positions } from "./ablation/positions";
import { type AblationPayload, changeOf, describeRemoved, formatOutput, headColor, isIntact, removedAt, shownEffects, singleHead, textColor, unit } from "./ablation/selection";

function Show({ payload }: { payload: AblationPayload }) {
  return (
    <div class="ablation">
      <HeadGrid payload={payload} />
      <Positions payload={payload} />
    </div>
  );
}

export const ablation: View<AblationPayload> = {
  name: "ablation",
  title: "Ablation",
  about: "Remove heads or whole layers of a model and see how its predictions change in the whole text; or which single head matters most.",
  model: true,
  kinds: ["reader", "writer", "tuned"],
  fields: [
    { name: "text", label: "Text; _ is a blank", lines: 2, start: "The animal did not cross the street because it was too tired." },
    { name: "text_b", label: "Second text, for fine-tuned models that read two", start: "", optional: true },
    { name: "heads", label: "Heads to remove, such as 3.1,4.*", start: "", optional: true },
    { name: "layers", label: "Layers to skip, such as 2,3", start: "", optional: true },
    { name: "at", label: "Predict", start: "", hidden: true },
  ],
  Show,
  drawing,
  table,
};

const [CELL_WIDTH, CELL_HEIGHT, LEFT, TOP] = [46, 26, 70, 80];
const WIDTH = 940;
const MARGIN = 20;
const BOX = 62; // height of a token with two predictions below

export function drawing(payload: AblationPayload, route: Route): Drawing {
  const { num_layers: depth, num_heads: heads } = payload.model;
  const intact = isIntact(payload, route);
  const height = intact ? BOX - 18 : BOX;
  let [x, y] = [MARGIN, TOP + depth * CELL_HEIGHT + 36];
  const boxes = shownEffects(payload, route).flatMap((one, position) => {
    if (!one) return [];
    const spot = payload.positions[position];
    const prediction = (output: string, when: "before" | "after") => {
      const change = changeOf(one.effect, output);
      return `${output} ${change ? formatOutput(payload, change[when]) : ""}`.trim();
    };
    const token = spot === undefined ? one.target : (payload.tokens[spot] ?? "…");
    const lines = [token, prediction(one.before, "before"), ...(intact ? [] : [prediction(one.after, "after")])];
    const width = 7 * Math.max(...lines.map((line) => line.length)) + 16;
    if (x + width > WIDTH - MARGIN) [x, y] = [MARGIN, y + height + 8];
    const box = { lines, left: x, top: y, width, opacity: 0.04 + 0.6 * textColor(payload, one.strength), changed: one.before !== one.after };
    x += width;
    return [box];
  });
  const bottom = y + height + 8;
  return {
    width: Math.max(WIDTH, 90 + heads * CELL_WIDTH),
    height: bottom + MARGIN,
    draw(painter) {
      const { accent, muted } = colors.get();
      drawHeads(painter, payload, route);
      for (const { lines, left, top, width, opacity, changed } of boxes) {
        painter.rect(left, top - 12, width - 4, height, accent, opacity);
        painter.text(lines[0]!, left + 5, top, { mono: true, size: 13 });
        painter.text(lines[1]!, left + 5, top + 20, { size: 11 });
        if (lines[2]) painter.text(lines[2], left + 5, top + 38, { size: 11, bold: changed });
      }
      painter.text(intact ? "below each: the most probable prediction" : "below each: the most probable prediction before and after", MARGIN, bottom, { size: 12, color: muted });
    },
  };
}

function drawHeads(painter: Painter, payload: AblationPayload, route: Route): void {
  const { accent, muted } = colors.get();
  const removed = removedAt(payload, route);
  const single = singleHead(payload, route);
  const out = single ? `head ${single.layer}.${single.head} alone` : describeRemoved(payload, removed);
  const label = { size: 11, color: muted };
  painter.text(`${payload.model.name} ${out ? `without ${out}` : "intact"}`, MARGIN, 24, { size: 15, bold: true });
  painter.text(`each head removed alone: ${payload.sweep.measure}${unit(payload) === "nats" ? " in nats" : ""}; × is removed`, MARGIN, 46, { size: 12, color: muted });
  for (const head of range(payload.model.num_heads)) painter.text(String(head), LEFT + (head + 0.5) * CELL_WIDTH, TOP - 10, { ...label, align: "center" });
  for (const { layer, head, strength } of payload.sweep.heads) {
    const [x, y] = [LEFT + head * CELL_WIDTH, TOP + layer * CELL_HEIGHT];
    const missing = !single && (removed.heads.has(`${layer}.${head}`) || removed.layers.has(layer));
    painter.rect(x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, accent, 0.04 + 0.6 * headColor(payload, strength));
    const number = strength < 0.005 && strength > 0 ? strength.toExponential(0) : strength.toFixed(2);
    painter.text(`${missing ? "× " : ""}${number}`, x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2, { align: "center", size: 11 });
    if (!head) painter.text(`layer ${layer}`, LEFT - 8, y + CELL_HEIGHT / 2, { ...label, align: "right" });
  }
}

export function table(payload: AblationPayload, route: Route): Table {
  const rows: (string | number)[][] = [];
  for (const one of shownEffects(payload, route)) {
    if (!one) continue;
    const [before, after] = [changeOf(one.effect, one.before), changeOf(one.effect, one.after)];
    rows.push(["place", one.target, one.before, before?.before ?? "", one.after, after?.after ?? "", one.strength, one.effect?.distance ?? ""]);
    for (const change of one.effect?.likeliest ?? []) rows.push(["output", one.target, change.output, change.before, change.output, change.after, "", ""]);
  }
  for (const one of payload.sweep.heads) rows.push(["head", `${one.layer}.${one.head}`, "", "", "", "", one.strength, one.distance]);
  return { headers: ["what", "name", "before", "probability before", "after", "probability after", payload.sweep.measure, "distance"], rows };
}
