// A vector as a row of cells: one color for positive numbers, another for negative ones, paler for smaller ones.
import { Canvas } from "./canvas";
import { type Painter, signedMatrix } from "./painter";
import { colors } from "./theme";

export const STRIP_HEIGHT = 16;

/** `largest` is the magnitude of the full color; `marked` is a dimension with a vertical line, -1 for none. */
export function drawVector(painter: Painter, vector: Float32Array, largest: number, x: number, y: number, width: number, marked = -1): void {
  const { ink, rule } = colors.get();
  signedMatrix(painter, vector, largest, vector.length, x, y, width, STRIP_HEIGHT);
  painter.line(x, y + STRIP_HEIGHT, x + width, y + STRIP_HEIGHT, rule);
  const middle = x + ((marked + 0.5) * width) / vector.length;
  if (marked >= 0 && marked < vector.length) painter.line(middle, y - 1, middle, y + STRIP_HEIGHT + 1, ink, 0.8);
}

interface Props {
  readonly vector: Float32Array;
  readonly largest: number;
  readonly width: number;
  readonly marked?: number;
  onSelect?(dimension: number): void;
}

export function VectorStrip({ vector, largest, width, marked = -1, onSelect }: Props) {
  const press = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    onSelect?.(Math.max(0, Math.min(vector.length - 1, Math.floor(((event.clientX - box.left) / box.width) * vector.length))));
  };
  return (
    <Canvas
      width={width}
      height={STRIP_HEIGHT + 2}
      inputs={[vector, largest, marked]}
      draw={(painter) => drawVector(painter, vector, largest, 0, 1, width, marked)}
      {...(onSelect && { canvas: { onClick: press, class: "pressed" } })}
    />
  );
}
