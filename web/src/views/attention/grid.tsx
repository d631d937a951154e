// Model mode: a thumbnail of every head of every layer, and the selected one as a heat map. Also the heat map's
// drawing.
import { useEffect, useRef } from "preact/hooks";
import { useWidth } from "../../canvas";
import { DataTable, Token } from "../../components";
import { layerNumbers, range } from "../../format";
import { drawLabels, HeatMap, type MapLayout, squareLayout } from "../../heat_map";
import { outline, type Painter, raster } from "../../painter";
import { setParameters } from "../../route";
import { colors } from "../../theme";
import type { Selection } from "./maps";

const MAX_THUMBNAIL = 64;
const MAX_CELL = 26;
const MARGIN = 22;

export const gridSize = ({ source, maps }: Selection) =>
  [source === "flow" ? 1 : maps.layers, source === "heads" ? maps.heads : 1] as const;

export function mapTitle({ source }: Selection, layer: number, head: number): string {
  if (source === "heads") return `Layer ${layer}, head ${head}`;
  return {
    flow: "Flow",
    rollout: `Rollout to layer ${layer}`,
    mean: `Layer ${layer}, mean of all heads`,
    max: `Layer ${layer}, maximum over heads`,
  }[source];
}

export function Grid({ selection }: { selection: Selection }) {
  const [element, width] = useWidth<HTMLDivElement>();
  const { layer, source } = selection;
  const [layers, heads] = gridSize(selection);
  const current = selection.heads[0]!;
  const size = Math.max(14, Math.min(MAX_THUMBNAIL, Math.floor((width - MARGIN) / heads) - 4));
  return (
    <div class="split grid">
      <div ref={element}>
        <DataTable
          class="thumbnails"
          caption={
            {
              heads: "Layers down, heads across",
              flow: "Flow through all layers",
              rollout: "Rollout, layer by layer",
              mean: "Mean of the heads, layer by layer",
              max: "Maximum over the heads, layer by layer",
            }[source]
          }
          {...(source === "heads" && { headers: ["", ...range(heads)] })}
          rows={layerNumbers(layers).map((row) => [
            source === "flow" ? "" : row,
            ...range(heads).map((head) => (
              <Thumbnail
                selection={selection}
                layer={row}
                head={head}
                size={size}
                pressed={(row === layer || source === "flow") && head === current}
              />
            )),
          ])}
        />
      </div>
      <div>
        <h3>{mapTitle(selection, layer, current)}</h3>
        <AttentionHeatMap selection={selection} head={current} />
      </div>
    </div>
  );
}

interface ThumbnailProps {
  readonly selection: Selection;
  readonly layer: number;
  readonly head: number;
  readonly size: number;
  readonly pressed: boolean;
}

function Thumbnail({ selection, layer, head, size, pressed }: ThumbnailProps) {
  const button = useRef<HTMLButtonElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { maps, source, level, pair, hidesSpecial, threshold, columns } = selection;
  const { accent } = colors.use();
  const draw = () => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const pixels = size * (devicePixelRatio || 1);
    const image = raster(
      maps.thumbnail(layer, head, selection, Math.ceil(pixels), threshold),
      columns.labels.length,
      accent,
      pixels,
    );
    context.canvas.width = context.canvas.height = pixels;
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, pixels, pixels);
  };
  useEffect(() => runWhenIdle(draw), [maps, source, level, pair, hidesSpecial, threshold, layer, head, size, accent]);
  // Arrow keys change the selected thumbnail; the focus follows.
  useEffect(() => {
    if (pressed && document.activeElement?.closest(".thumbnails")) button.current?.focus();
  }, [pressed]);
  return (
    <button
      ref={button}
      type="button"
      class="thumbnail"
      aria-pressed={pressed}
      aria-label={mapTitle(selection, layer, head)}
      tabIndex={pressed ? 0 : -1}
      onClick={() => setParameters({ layer: String(layer), heads: String(head) })}
    >
      {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: a canvas without tabIndex takes no focus */}
      <canvas ref={canvas} style={{ width: `${size}px`, height: `${size}px` }} aria-hidden="true" />
    </button>
  );
}

export const heatMapLayout = ({ rows, columns }: Selection, room: number) =>
  squareLayout(rows.labels, columns.labels, room, MAX_CELL);

export function drawHeatMap(
  painter: Painter,
  selection: Selection,
  head: number,
  layout: MapLayout,
  x = 0,
  y = 0,
): void {
  const { rows, columns, maps, layer, threshold } = selection;
  const { accent, rule } = colors.get();
  drawLabels(painter, rows.labels, columns.labels, layout, x, y);
  const box = [x + layout.left, y + layout.top, layout.width - layout.left, layout.height - layout.top] as const;
  painter.matrix(maps.shades(layer, head, selection, threshold), columns.labels.length, ...box, accent);
  outline(painter, ...box, rule);
}

function AttentionHeatMap({ selection, head }: { selection: Selection; head: number }) {
  const { rows, columns, maps, layer } = selection;
  return (
    <HeatMap
      size={[rows.labels.length, columns.labels.length]}
      layout={(room) => heatMapLayout(selection, room)}
      inputs={[selection, head]}
      label={`Map of layer ${layer}, head ${head}: ${rows.labels.length} by ${columns.labels.length} weights`}
      draw={(painter, layout) => drawHeatMap(painter, selection, head, layout)}
      describe={(cell) =>
        cell ? (
          <>
            <Token text={rows.labels[cell[0]]} /> attends to <Token text={columns.labels[cell[1]]} />:{" "}
            {maps.weights(layer, head, selection)[cell[0] * columns.labels.length + cell[1]]!.toFixed(3)}
          </>
        ) : (
          "Rows attend to columns. Point at a cell for its weight."
        )
      }
    />
  );
}

const queue = new Set<() => void>();
const BUDGET = 10; // milliseconds per frame

/** Schedules a task; the returned function cancels it. */
export function runWhenIdle(task: () => void): () => void {
  if (!queue.size) requestAnimationFrame(work);
  queue.add(task);
  return () => void queue.delete(task);
}

function work(): void {
  const end = performance.now() + BUDGET;
  for (const task of queue) {
    queue.delete(task);
    task();
    if (performance.now() > end) break;
  }
  if (queue.size) requestAnimationFrame(work);
}
