// Image mode: the patches that one patch, or [CLS], attends to. Pressing a patch selects it as the query.
import { useEffect, useState } from "preact/hooks";
import { Canvas, useWidth } from "../../canvas";
import { Select } from "../../components";
import { colors } from "../../theme";
import { focusWeights } from "./draw_lines";
import { WeightsPanel } from "./lines";
import { type Selection, setLock } from "./selection";

const MAX_WIDTH = 520;

interface Props {
  readonly selection: Selection;
  readonly source: string;
  /** Rows and columns of patches. */
  readonly grid: readonly [number, number];
}

export function ImageMode({ selection, source, grid: [down, across] }: Props) {
  const [element, room] = useWidth<HTMLDivElement>();
  const [image, setImage] = useState<HTMLImageElement | null>(null);
  useEffect(() => {
    const loading = new Image();
    loading.onload = () => setImage(loading);
    loading.src = source;
  }, [source]);
  const special = selection.columns.labels.length - down * across; // tokens before the patches, such as [CLS]
  const focus = selection.locked?.side === "row" ? selection.locked : { side: "row" as const, index: 0 };
  const weights = focusWeights(selection, focus);
  const width = Math.min(MAX_WIDTH, room);
  const height = image ? Math.round((width * image.naturalHeight) / image.naturalWidth) : width;
  const patches = Array.from({ length: down * across }, (_, patch) => Math.max(...weights.map((list) => list[special + patch]!)));
  const largest = Math.max(1e-9, ...patches);
  const select = (index: number) => setLock({ side: "row", index }, selection);
  const press = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * down);
    const column = Math.floor(((event.clientX - box.left) / box.width) * across);
    select(special + row * across + column);
  };
  const draw = (_: unknown, context: CanvasRenderingContext2D) => {
    if (!image) return;
    context.drawImage(image, 0, 0, width, height);
    const corner = (patch: number) => [((patch % across) * width) / across, (Math.floor(patch / across) * height) / down] as const;
    context.fillStyle = "#000000";
    patches.forEach((weight, patch) => {
      context.globalAlpha = 0.8 * (1 - Math.sqrt(weight / largest));
      context.fillRect(...corner(patch), width / across + 0.5, height / down + 0.5);
    });
    context.globalAlpha = 1;
    if (focus.index < special) return;
    context.strokeStyle = colors.get().other;
    context.lineWidth = 3;
    context.strokeRect(...corner(focus.index - special), width / across, height / down);
  };
  return (
    <div class="split">
      <div ref={element}>
        <Canvas
          width={width}
          height={height}
          inputs={[image, selection, focus.index]}
          label={`The image, bright where ${selection.rows.labels[focus.index]} attends`}
          canvas={{ onClick: press, class: "picture" }}
          draw={draw}
        />
        <div class="choices">
          <Select label="Query patch" options={Object.fromEntries(selection.rows.labels.entries())} value={focus.index} onSelect={(index) => select(Number(index))} />
          <span class="muted">Bright patches have large weights; largest {largest.toFixed(3)}.</span>
        </div>
      </div>
      <WeightsPanel selection={selection} focus={focus} weights={weights} />
    </div>
  );
}
