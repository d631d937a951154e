// An image as a Vision Transformer reads it: its patches colored by a method, or cut apart and numbered in reading
// order.
import { useEffect, useState } from "preact/hooks";
import { Canvas } from "./canvas";
import { loadImage, outline, type Painter, type Part } from "./painter";
import { colors } from "./theme";
import type { TokenStrip } from "./token_strips";

/** The images that come with Regard (src/regard/data/images), by name. */
export const EXAMPLE_IMAGES = [
  "digit-0",
  "digit-1",
  "digit-2",
  "digit-2-or-7",
  "digit-3",
  "digit-4",
  "digit-4-or-9",
  "digit-5",
  "digit-6",
  "digit-7",
  "digit-8",
  "digit-9",
];

export interface PatchImage {
  readonly image: string;
  /** Rows and columns of patches. */
  readonly grid: readonly [number, number];
}

const SIDE = 210; // pixels of the longer side

function sizeOf([down, across]: PatchImage["grid"], side: number) {
  const patch = side / Math.max(down, across);
  return { patch, width: across * patch, height: down * patch };
}

/**
 * The image under a color for each patch, from -1 (against) to 1 (for); the first colors are those of special tokens.
 */
export function drawColoredPatches(
  painter: Painter,
  { image, grid }: PatchImage,
  tints: readonly number[],
  side: number,
  x = 0,
  y = 0,
): void {
  const { patch, width, height } = sizeOf(grid, side);
  const { accent, other, rule } = colors.get();
  painter.image(image, x, y, width, height);
  tints.slice(-grid[0] * grid[1]).forEach((tint, number) => {
    const [left, top] = [x + (number % grid[1]) * patch, y + Math.floor(number / grid[1]) * patch];
    painter.rect(left, top, patch, patch, tint < 0 ? other : accent, 0.75 * Math.min(1, Math.abs(tint)));
  });
  outline(painter, x, y, width, height, rule, 1, 1);
}

/** The picture of every method side by side. */
export function PatchPictures({ picture, strips }: { picture: PatchImage; strips: readonly TokenStrip[] }) {
  const loaded = useLoadedImage(picture.image);
  const { width, height } = sizeOf(picture.grid, SIDE);
  return (
    <div class="patch-pictures">
      {strips.map((strip) => (
        <figure key={strip.name}>
          <figcaption>{strip.name}</figcaption>
          <Canvas
            width={width}
            height={height}
            inputs={[loaded, strip]}
            label={`${strip.name}, over the patches of the image`}
            draw={(painter) => drawColoredPatches(painter, picture, strip.colors, SIDE)}
          />
          <p class="muted">{strip.about}</p>
        </figure>
      ))}
    </div>
  );
}

/** The same for SVG and PNG. */
export function patchPicturesPart(picture: PatchImage, strips: readonly TokenStrip[]): Part {
  const { height } = sizeOf(picture.grid, SIDE);
  return [
    height + 40,
    (painter, y) =>
      strips.forEach((strip, number) => {
        painter.text(strip.name, 20 + number * (SIDE + 10), y + 10, { size: 10, bold: true });
        drawColoredPatches(painter, picture, strip.colors, SIDE, 20 + number * (SIDE + 10), y + 22);
      }),
  ];
}

export function useLoadedImage(source: string): string {
  const [loaded, setLoaded] = useState("");
  useEffect(() => void loadImage(source).then(() => setLoaded(source)), [source]);
  return loaded;
}
