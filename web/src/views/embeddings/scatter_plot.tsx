// A scatter plot of points in a plane; pointing at one shows its text, clicking selects it.
import { useMemo, useState } from "preact/hooks";
import { Canvas, pointerIn, useWidth } from "../../canvas";
import { fixedPercent } from "../../format";
import { outline, type Painter } from "../../painter";
import { colors, series } from "../../theme";

export type Point = readonly [number, number];

/** Pixel positions of points. Both axes have one scale, so distances are those of the plane. */
export interface PlotLayout {
  readonly width: number;
  readonly height: number;
  readonly at: readonly Point[];
  /** Index of the point nearest to a pixel, or -1. */
  nearest(x: number, y: number): number;
}

export interface PlotStyle {
  /** Explained variance of both components. */
  readonly explained: readonly number[];
  /** Index of the color and marker of a point. */
  group(point: number): number;
  label?(point: number): string;
  readonly size: number;
  /** Points that are not faded; all if omitted. */
  readonly highlighted?: ReadonlySet<number>;
  readonly selected?: number;
  /** Points connected to the selected one. */
  readonly neighbors?: readonly number[];
}

const REACH = 14; // pixels
const MARGIN = 34;
const MARKERS = ["●", "▲", "■", "◆", "★", "✚", "▼", "✖"]; // distinguish groups without colors

export function marker(group: number): string {
  return MARKERS[group % MARKERS.length]!;
}

export function layoutOf(points: readonly Point[], width: number, height: number, margin = MARGIN): PlotLayout {
  const range = (axis: 0 | 1) => {
    const values = points.map((point) => point[axis]);
    return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)] as const;
  };
  const [left, right] = range(0);
  const [low, high] = range(1);
  const scale = Math.min((width - 2 * margin) / (right - left || 1e-9), (height - 2 * margin) / (high - low || 1e-9), 1e9);
  const middle = [(left + right) / 2, (low + high) / 2] as const;
  const at = points.map(([x, y]): Point => [width / 2 + (x - middle[0]) * scale, height / 2 - (y - middle[1]) * scale]);
  const nearest = (x: number, y: number) => {
    let [best, least] = [-1, REACH ** 2];
    at.forEach(([px, py], point) => {
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [point, distance];
    });
    return best;
  };
  return { width, height, at, nearest };
}

export function drawScatter(painter: Painter, layout: PlotLayout, style: PlotStyle): void {
  const { muted, rule, ink, page } = colors.get();
  const { width, height, at } = layout;
  outline(painter, 0.5, 0.5, width - 1, height - 1, rule);
  if (width > 200) {
    painter.text(`component 1: ${fixedPercent(style.explained[0]!, 1)} of the variance →`, width - 8, height - 12, { size: 12, color: muted, align: "right" });
    painter.text(`component 2: ${fixedPercent(style.explained[1]!, 1)} →`, 12, height - 8, { size: 12, color: muted, rotated: true });
  }
  const dot = (point: number, color: string) => {
    const [x, y] = at[point]!;
    const sign = marker(style.group(point));
    painter.text(sign, x, y, { size: style.size + 3, align: "center", color: page }); // a border that separates overlapping points
    painter.text(sign, x, y, { size: style.size, align: "center", color });
  };
  const highlighted = (point: number) => !style.highlighted || style.highlighted.has(point);
  at.forEach((_, point) => !highlighted(point) && dot(point, rule));
  at.forEach((_, point) => highlighted(point) && dot(point, series(style.group(point))));
  if (style.selected !== undefined) drawNeighbors(painter, layout, style.selected, style.neighbors ?? [], style.size, ink);
  if (!style.label) return;
  at.forEach(([x, y], point) => {
    const onLeft = x > width - 40;
    painter.text(style.label!(point), x + (onLeft ? -1 : 1) * (style.size * 0.5 + 3), y, { size: 12, align: onLeft ? "right" : "left", color: ink });
  });
}

/** A frame around a point, and lines from it to its neighbors. */
function drawNeighbors(painter: Painter, { at }: PlotLayout, point: number, neighbors: readonly number[], size: number, color: string): void {
  const [x, y] = at[point]!;
  painter.lines(neighbors.flatMap((other) => [x, y, ...at[other]!]), color, 0.7, false, 1.3);
  outline(painter, x - size * 0.8, y - size * 0.8, size * 1.6, size * 1.6, color, 1, 1.6);
}

interface Props {
  readonly points: readonly Point[];
  readonly style: PlotStyle;
  readonly label: string;
  readonly height: number;
  /** Text of the tooltip. */
  describe(point: number): string;
  neighbors?(point: number): readonly number[];
  onSelect?(point: number): void;
}

export function ScatterPlot({ points, style, label, height, describe, neighbors, onSelect }: Props) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [pointed, setPointed] = useState(-1);
  const layout = useMemo(() => layoutOf(points, width, height), [points, width, height]);
  const at = pointed >= 0 ? layout.at[pointed] : undefined;
  const pointAt = (event: MouseEvent) => {
    const { x, y } = pointerIn(event);
    return layout.nearest(x, y);
  };
  const canvas = {
    class: pointed >= 0 && onSelect ? "pointed" : "",
    onPointerMove: (event: PointerEvent) => setPointed(pointAt(event)),
    onPointerLeave: () => setPointed(-1),
    onClick: (event: MouseEvent) => {
      const point = pointAt(event);
      if (point >= 0) onSelect?.(point);
    },
  };
  return (
    <div class="plane" ref={element}>
      {width > 0 && <Canvas width={width} height={height} label={label} inputs={[layout, style]} draw={(painter) => drawScatter(painter, layout, style)} canvas={canvas} />}
      {at && neighbors && (
        <Canvas
          width={width}
          height={height}
          inputs={[layout, pointed]}
          draw={(painter) => drawNeighbors(painter, layout, pointed, neighbors(pointed), style.size, colors.get().accent)}
          canvas={{ class: "above" }}
        />
      )}
      {at && (
        <p class="tip" style={{ top: `${at[1] + 14}px`, ...(at[0] > width / 2 ? { right: `${width - at[0]}px` } : { left: `${at[0]}px` }) }}>
          {describe(pointed)}
        </p>
      )}
    </div>
  );
}
