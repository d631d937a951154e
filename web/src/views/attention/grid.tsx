// Model view: a thumbnail of every head of every layer, and the chosen one large.
import { useEffect, useRef } from "preact/hooks";
import { later } from "./idle_queue";
import { useWidth } from "../../canvas";
import { raster } from "../../painter";
import { colors } from "../../theme";
import { chooseHead, type Choice } from "./choice";
import { Heat } from "./heat";

const LARGEST = 64;
const MARGIN = 22;

export function Grid({ choice }: { choice: Choice }) {
  const [element, width] = useWidth<HTMLDivElement>();
  const { layer, maps, source } = choice;
  const heads = source === "heads" ? maps.heads : 1;
  const layers = source === "flow" ? 1 : maps.layers;
  const chosen = choice.heads[0]!;
  const size = Math.max(14, Math.min(LARGEST, Math.floor((width - MARGIN) / heads) - 4));
  return (
    <div class="split grid">
      <div ref={element}>
        <table class="thumbnails">
          <caption class="muted">{source === "heads" ? "Layers down, heads across" : source === "flow" ? "Flow through all layers" : "Rollout, layer by layer"}</caption>
          {source === "heads" && (
            <thead>
              <tr>
                <td />
                {Array.from({ length: heads }, (_, head) => (
                  <th key={head} scope="col">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
          )}
          <tbody>
            {Array.from({ length: layers }, (_, row) => (
              <tr key={row}>
                <th scope="row">{source === "flow" ? "" : row}</th>
                {Array.from({ length: heads }, (_, head) => (
                  <td key={head}>
                    <Thumbnail choice={choice} layer={row} head={head} size={size} chosen={(row === layer || source === "flow") && head === chosen} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div>
        <h3>{source === "heads" ? `Layer ${layer}, head ${chosen}` : source === "flow" ? "Flow" : `Rollout to layer ${layer}`}</h3>
        <Heat choice={choice} head={chosen} />
      </div>
    </div>
  );
}

interface ThumbnailProps {
  readonly choice: Choice;
  readonly layer: number;
  readonly head: number;
  readonly size: number;
  readonly chosen: boolean;
}

function Thumbnail({ choice, layer, head, size, chosen }: ThumbnailProps) {
  const button = useRef<HTMLButtonElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { maps, source, level, pair, columns } = choice;
  const { accent } = colors.use();
  useEffect(() => later(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const pixels = size * (devicePixelRatio || 1);
    const small = raster(maps.sketch(layer, head, choice, Math.ceil(pixels)), columns.names.length, accent, pixels);
    context.canvas.width = context.canvas.height = pixels;
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, pixels, pixels);
  }), [maps, source, level, pair, layer, head, size, accent]);
  // Arrow keys move the choice, and with it the focus where it is among the thumbnails.
  useEffect(() => {
    if (chosen && document.activeElement?.closest(".thumbnails")) button.current?.focus();
  }, [chosen]);
  return (
    <button
      ref={button}
      type="button"
      class="thumbnail"
      aria-pressed={chosen}
      aria-label={source === "heads" ? `Layer ${layer}, head ${head}` : source === "flow" ? "Flow" : `Rollout to layer ${layer}`}
      tabIndex={chosen ? 0 : -1}
      onClick={() => chooseHead(layer, head)}
    >
      <canvas ref={canvas} style={{ width: `${size}px`, height: `${size}px` }} aria-hidden="true" />
    </button>
  );
}
