// A vector as a row of cells: one colour above zero, another below, the paler the smaller. Knows numbers and pixels.
import { Canvas } from "../../canvas";
import { canvasPainter, type Painter } from "../../painter";
import { colors } from "../../theme";

export const HIGH = 16;

/** The largest size of a number, by which several vectors are coloured alike. */
export function largest(vectors: readonly Float32Array[]): number {
  return Math.max(1e-12, ...vectors.map((one) => one.reduce((most, value) => Math.max(most, Math.abs(value)), 0)));
}

export function drawStrip(painter: Painter, vector: Float32Array, most: number, x: number, y: number, width: number, marked: number): void {
  const { accent, other, ink, rule } = colors.get();
  const cell = width / vector.length;
  vector.forEach((value, d) => {
    const share = Math.min(1, Math.abs(value) / most);
    if (share > 0.004) painter.rect(x + d * cell, y, cell, HIGH, value < 0 ? other : accent, share);
  });
  painter.lines([x, y + HIGH, x + width, y + HIGH], rule, 1, false, 1);
  if (marked >= 0 && marked < vector.length) {
    const middle = x + (marked + 0.5) * cell;
    painter.lines([middle, y - 1, middle, y + HIGH + 1], ink, 0.8, false, 1);
  }
}

interface Props {
  readonly vector: Float32Array;
  readonly most: number;
  readonly width: number;
  /** The number that is written out; none for vectors it is not one of. */
  readonly d?: number;
  onChoose?(d: number): void;
}

export function Strip({ vector, most, width, d = -1, onChoose }: Props) {
  const press = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    onChoose?.(Math.max(0, Math.min(vector.length - 1, Math.floor(((event.clientX - box.left) / box.width) * vector.length))));
  };
  return (
    <Canvas
      width={width}
      height={HIGH + 2}
      inputs={[vector, most, d]}
      draw={(context) => drawStrip(canvasPainter(context, colors.get().ink), vector, most, 0, 1, width, d)}
      {...(onChoose && { canvas: { onClick: press, class: "pressed" } })}
    />
  );
}
