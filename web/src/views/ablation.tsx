// Ablation: remove heads and layers of a model, and see how its predictions change in the whole text.
import { useState } from "preact/hooks";
import { inStudio } from "../api";
import { DataTable } from "../components";
import { range } from "../format";
import { drawHeadGrid, HeadGrid, headGridSize } from "../head_grid";
import type { Painter } from "../painter";
import { currentRoute, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { Drawing, Table, View } from "../view";
import "./ablation/ablation.css";
import {
  type AblationPayload,
  changeOf,
  describeRemoved,
  formatOutput,
  formatStrength,
  headColor,
  isIntact,
  Positions,
  removedAt,
  setRemoved,
  shownEffects,
  singleHead,
  strongest,
  textColor,
  toggleHeads,
  toggleLayer,
  unit,
} from "./ablation/positions";

function Show({ payload }: { payload: AblationPayload }) {
  return (
    <div class="ablation">
      <Heads payload={payload} />
      <Positions payload={payload} />
    </div>
  );
}

const ANIMAL = "The animal did not cross the street because it was too tired.";

function finding(payload: AblationPayload, route: Route): string {
  const { name } = payload.model;
  const shown = shownEffects(payload, route).filter((one) => one !== undefined);
  const single = singleHead(payload, route);
  const out = single ? `head ${single.layer}.${single.head}` : describeRemoved(payload, removedAt(payload, route));
  if (out && shown.length > 1)
    return (
      `Without ${out}, ${name} predicts something else at ${shown.filter((one) => one.before !== one.after).length} ` +
      `of ${shown.length} positions`
    );
  if (out && shown[0])
    return shown[0].before === shown[0].after
      ? `Without ${out}, ${name} still predicts “${shown[0].before}”`
      : `Without ${out}, ${name} predicts “${shown[0].after}” instead of “${shown[0].before}”`;
  const [most] = payload.sweep.ranked;
  return most
    ? `Removing head ${most.layer}.${most.head} alone changes the predictions of ${name} most ` +
        `(${formatStrength(most.strength)} ${unit(payload)})`
    : "";
}

export const ablation: View<AblationPayload> = {
  name: "ablation",
  title: "Ablation",
  about:
    "Remove heads or whole layers of a model and see how its predictions change in the whole text; or which " +
    "single head matters most.",
  group: "inside",
  examples: [
    { label: "Which head matters most?", values: { text: ANIMAL } },
    { label: "Without the first layer's heads", values: { text: ANIMAL, heads: "1.*" } },
    { label: "Without layers 3 and 4", values: { text: ANIMAL, layers: "3,4" } },
    { label: "One blank", values: { text: "The capital of France is _." } },
    { label: "A model that reads left to right", values: { text: ANIMAL, heads: "5.3" }, model: "regard-gpt" },
  ],
  travels: { text: "text", second: "text_b" },
  Thumbnail: thumbnails.ablation,
  finding,
  verb: "ablate",
  excludes: ["translation", "image"],
  fields: [
    { name: "text", label: "Text; _ is a blank", lines: 2, start: ANIMAL },
    { name: "text_b", label: "Second text, for fine-tuned models that read two", start: "", optional: true },
    { name: "heads", label: "Heads to remove, such as 3.1,4.*", start: "", optional: true, fold: true },
    { name: "layers", label: "Layers to skip, such as 2,3", start: "", optional: true, fold: true },
    { name: "at", label: "Predict", start: "", hidden: true },
  ],
  toRequest: (args) => ({ ...args, at: args["at"] || "auto" }),
  Show,
  drawing,
  table,
};

const [LEFT, TOP] = [70, 80];
const WIDTH = 940;
const MARGIN = 20;
const BOX = 62; // height of a token with two predictions below

export function drawing(payload: AblationPayload, route: Route): Drawing {
  const [gridWidth, gridHeight] = headGridSize(payload.model.num_layers, payload.model.num_heads);
  const intact = isIntact(payload, route);
  const height = intact ? BOX - 18 : BOX;
  let [x, y] = [MARGIN, TOP + gridHeight + 36];
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
    const box = {
      lines,
      left: x,
      top: y,
      width,
      opacity: 0.04 + 0.6 * textColor(payload, one.strength),
      changed: one.before !== one.after,
    };
    x += width;
    return [box];
  });
  const bottom = y + height + 8;
  return {
    width: Math.max(WIDTH, LEFT + gridWidth + MARGIN),
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
      painter.text(
        intact
          ? "below each: the most probable prediction"
          : "below each: the most probable prediction before and after",
        MARGIN,
        bottom,
        { size: 12, color: muted },
      );
    },
  };
}

function drawHeads(painter: Painter, payload: AblationPayload, route: Route): void {
  const { accent, muted } = colors.get();
  const removed = removedAt(payload, route);
  const single = singleHead(payload, route);
  const out = single ? `head ${single.layer}.${single.head} alone` : describeRemoved(payload, removed);
  painter.text(`${payload.model.name} ${out ? `without ${out}` : "intact"}`, MARGIN, 24, { size: 15, bold: true });
  painter.text(
    `each head removed alone: ${payload.sweep.measure}${unit(payload) === "nats" ? " in nats" : ""}; × is removed`,
    MARGIN,
    46,
    { size: 12, color: muted },
  );
  const cells = payload.sweep.ranked.map(({ layer, head, strength }) => {
    const missing = !single && (removed.heads.has(`${layer}.${head}`) || removed.layers.has(layer));
    const number = strength < 0.005 && strength > 0 ? strength.toExponential(0) : strength.toFixed(2);
    return {
      layer,
      head,
      color: accent,
      opacity: 0.04 + 0.6 * headColor(payload, strength),
      text: `${missing ? "× " : ""}${number}`,
    };
  });
  drawHeadGrid(painter, cells, LEFT, TOP);
}

export function table(payload: AblationPayload, route: Route): Table {
  const rows: (string | number)[][] = [];
  for (const one of shownEffects(payload, route)) {
    if (!one) continue;
    const [before, after] = [changeOf(one.effect, one.before), changeOf(one.effect, one.after)];
    rows.push([
      "position",
      one.target,
      one.before,
      before?.before ?? "",
      one.after,
      after?.after ?? "",
      one.strength,
      one.effect?.distance ?? "",
    ]);
    for (const change of one.effect?.likeliest ?? [])
      rows.push(["output", one.target, change.output, change.before, change.output, change.after, "", ""]);
  }
  for (const one of payload.sweep.ranked)
    rows.push(["head", `${one.layer}.${one.head}`, "", "", "", "", one.strength, one.distance]);
  return {
    headers: [
      "what",
      "name",
      "before",
      "probability before",
      "after",
      "probability after",
      payload.sweep.measure,
      "distance",
    ],
    rows,
  };
}

const RANKED = 5;

function Heads({ payload }: { payload: AblationPayload }) {
  const route = currentRoute.use();
  const removed = removedAt(payload, route);
  const single = singleHead(payload, route);
  const { num_heads: heads } = payload.model;
  const [focused, setFocused] = useState(0);
  const live = inStudio();
  const most = strongest(payload);
  const positions = payload.sweep.targets.length;
  const inOrder = [...payload.sweep.ranked].sort((a, b) => a.layer - b.layer || a.head - b.head);
  const measured =
    positions < payload.effects.length
      ? `, the mean over ${positions} of the ${payload.effects.length} tokens`
      : positions > 1
        ? `, the mean over ${positions} positions`
        : "";
  const cell = (at: number) => {
    const { layer, head, strength } = inOrder[at]!;
    const name = `${layer}.${head}`;
    const out = removed.heads.has(name) || removed.layers.has(layer);
    return {
      text: brief(strength, most),
      pressed: live ? removed.heads.has(name) : isSingle(at),
      class: out && !single ? "ablation-out" : "",
      "aria-label": `${brief(strength, most)} Head ${name}${out ? ", removed" : ""}`,
      title: `${name} alone: ${formatStrength(strength)} ${unit(payload)}`,
      style: { "--tint": `${Math.round(45 * headColor(payload, strength))}%` },
    };
  };
  const isSingle = (at: number) => single !== undefined && inOrder[at] === single;
  const press = (at: number) => {
    const { layer, head } = inOrder[at]!;
    setFocused(at);
    if (live) return toggleHeads(payload, removed, [`${layer}.${head}`]);
    setParameters({ alone: isSingle(at) ? "" : `${layer}.${head}` });
  };
  const rowStart = (layer: number) =>
    live && (
      <button
        key={`l${layer}`}
        type="button"
        class="ablation-all"
        aria-label={`All heads of layer ${layer}`}
        onClick={() =>
          toggleHeads(
            payload,
            removed,
            range(heads).map((head) => `${layer}.${head}`),
          )
        }
      >
        {layer}
      </button>
    );
  const rowEnd = (layer: number) =>
    live ? (
      <button
        key={`s${layer}`}
        type="button"
        class="ablation-skip"
        aria-pressed={removed.layers.has(layer)}
        aria-label={`skip layer ${layer}`}
        title={`Skip layer ${layer}`}
        onClick={() => toggleLayer(payload, removed, layer)}
      >
        skip
      </button>
    ) : (
      <span key={`s${layer}`} class="at">
        {removed.layers.has(layer) ? "skipped" : ""}
      </span>
    );
  return (
    <section aria-labelledby="ablation-heads">
      <h2 id="ablation-heads">Heads</h2>
      <p class="muted ablation-note">
        The color is the effect of removing a head alone:{" "}
        {payload.sweep.measure === "divergence"
          ? "the divergence of the predictions in nats"
          : "the change of the value"}
        {measured}.{" "}
        {live
          ? "Press a head to remove it, or a layer number for all its heads."
          : "Press a head to see the effect of removing it alone."}
      </p>
      <HeadGrid
        layers={payload.model.num_layers}
        heads={heads}
        focused={focused}
        onFocus={setFocused}
        onPress={press}
        cell={cell}
        rowStart={rowStart}
        rowEnd={rowEnd}
      />
      <p class="ablation-scale muted" aria-hidden="true">
        0 <span class="ablation-ramp" /> {formatStrength(most)} {unit(payload)}, the strongest
      </p>
      <p class="ablation-removed" role="status">
        {single ? (
          <>
            Shown: without head {single.layer}.{single.head} alone.{" "}
            <button type="button" onClick={() => setParameters({ alone: "" })}>
              as requested
            </button>
          </>
        ) : removed.heads.size || removed.layers.size ? (
          <>
            Removed: {describeRemoved(payload, removed)}.{" "}
            {live && (
              <button type="button" onClick={() => setRemoved(payload, new Set(), new Set())}>
                restore all
              </button>
            )}
          </>
        ) : (
          "Nothing is removed: these are the model's own predictions."
        )}
      </p>
      <h3>Strongest heads, each removed alone</h3>
      <DataTable
        class="data-table ablation-table"
        headers={["head", payload.sweep.measure, "distance", "prediction changes at"]}
        rows={payload.sweep.ranked
          .slice(0, RANKED)
          .map((one) => [
            `${one.layer}.${one.head}`,
            formatStrength(one.strength),
            one.distance.toFixed(3),
            `${one.changed.length} of ${positions}`,
          ])}
      />
    </section>
  );
}

/** A strength that fits into a cell; powers of ten if all are small. */
function brief(strength: number, most: number): string {
  if (most < 0.05 && strength > 0) return strength.toExponential(0);
  if (strength >= 10) return strength.toFixed(0);
  return strength >= 0.995 ? strength.toFixed(1) : strength < 0.005 ? "0" : strength.toFixed(2).slice(1);
}
