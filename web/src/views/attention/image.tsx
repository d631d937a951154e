// Image mode: the patches that one patch, or [CLS], attends to. Pressing a patch selects it as the query.
import { useEffect, useState } from "preact/hooks";
import { Canvas, useWidth } from "../../canvas";
import { Select } from "../../components";
import { range } from "../../format";
import { loadImage, outline, type Painter } from "../../painter";
import { colors } from "../../theme";
import { focusWeights, WeightsPanel } from "./lines";
import { type Focus, type PatchImage, type Selection, setLock } from "./maps";

const MAX_WIDTH = 520;

/** The query: the locked token, or the first. */
export const focusOf = ({ locked }: Selection): Focus => (locked?.side === "row" ? locked : { side: "row", index: 0 });

/** The number of tokens before the patches, such as [CLS]. */
const specialTokens = ({ columns }: Selection, { grid: [down, across] }: PatchImage) => columns.labels.length - down * across;

/** The largest weight of each patch among the selected heads. */
function patchWeights(selection: Selection, image: PatchImage): number[] {
  const weights = focusWeights(selection, focusOf(selection));
  const special = specialTokens(selection, image);
  return range(image.grid[0] * image.grid[1]).map((patch) => Math.max(...weights.map((list) => list[special + patch]!)));
}

/** Width and height of an image whose longer side has this length; patches are square. */
export function sizeOf({ grid: [down, across] }: PatchImage, side: number): readonly [number, number] {
  const patch = side / Math.max(down, across);
  return [across * patch, down * patch];
}

/** The image, bright where weights are large; the query patch has a border. */
export function drawPatches(painter: Painter, selection: Selection, image: PatchImage, side: number, x = 0, y = 0): void {
  const [width, height] = sizeOf(image, side);
  const [down, across] = image.grid;
  const [patchWidth, patchHeight] = [width / across, height / down];
  const corner = (patch: number) => [x + (patch % across) * patchWidth, y + Math.floor(patch / across) * patchHeight] as const;
  const patches = patchWeights(selection, image);
  const largest = Math.max(1e-9, ...patches);
  painter.image(image.source, x, y, width, height);
  patches.forEach((weight, patch) => painter.rect(...corner(patch), patchWidth, patchHeight, "#000000", 0.8 * (1 - Math.sqrt(weight / largest))));
  const query = focusOf(selection).index - specialTokens(selection, image);
  if (query >= 0) outline(painter, ...corner(query), patchWidth, patchHeight, colors.get().other, 1, 3);
}

export function ImageMode({ selection, image }: { selection: Selection; image: PatchImage }) {
  const [element, room] = useWidth<HTMLDivElement>();
  const [loaded, setLoaded] = useState("");
  useEffect(() => void loadImage(image.source).then(() => setLoaded(image.source)), [image.source]);
  const focus = focusOf(selection);
  const side = Math.min(MAX_WIDTH, room);
  const [width, height] = sizeOf(image, side);
  const [down, across] = image.grid;
  const select = (index: number) => setLock({ side: "row", index }, selection);
  const press = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * down);
    const column = Math.floor(((event.clientX - box.left) / box.width) * across);
    select(specialTokens(selection, image) + row * across + column);
  };
  return (
    <div class="split">
      <div ref={element}>
        <Canvas
          width={width}
          height={height}
          inputs={[loaded, selection, focus.index]}
          label={`The image, bright where ${selection.rows.labels[focus.index]} attends`}
          canvas={{ onClick: press, class: "picture" }}
          draw={(painter) => drawPatches(painter, selection, image, side)}
        />
        <div class="choices">
          <Select label="Query patch" options={Object.fromEntries(selection.rows.labels.entries())} value={focus.index} onSelect={(index) => select(Number(index))} />
          <span class="muted">Bright patches have large weights; largest {Math.max(...patchWeights(selection, image)).toFixed(3)}.</span>
        </div>
      </div>
      <WeightsPanel selection={selection} focus={focus} weights={focusWeights(selection, focus)} />
    </div>
  );
}
