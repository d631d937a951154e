// A scatter plot of points in a plane; pointing at one shows its text, clicking selects it. It can be zoomed and moved,
// and points may glide to new positions.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
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
  /** Explained variance of both components; empty if the axes have no meaning. */
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

/** The part of a plot that is shown: magnified, around a center in fractions of the whole plot. */
export interface Viewport {
  readonly zoom: number;
  readonly x: number;
  readonly y: number;
}

export const WHOLE: Viewport = { zoom: 1, x: 0.5, y: 0.5 };
const MAX_ZOOM = 64;

/** A viewport that stays inside the plot. */
export function viewport(zoom: number, x: number, y: number): Viewport {
  const magnified = Math.max(1, Math.min(MAX_ZOOM, zoom || 1));
  const half = 0.5 / magnified;
  const inside = (value: number) => Math.max(half, Math.min(1 - half, Number.isFinite(value) ? value : 0.5));
  return { zoom: magnified, x: inside(x), y: inside(y) };
}

export function layoutOf(
  points: readonly Point[],
  width: number,
  height: number,
  margin = MARGIN,
  view = WHOLE,
): PlotLayout {
  const range = (axis: 0 | 1) => {
    const values = points.map((point) => point[axis]);
    return [
      values.reduce((a, b) => Math.min(a, b), Infinity),
      values.reduce((a, b) => Math.max(a, b), -Infinity),
    ] as const;
  };
  const [left, right] = range(0);
  const [low, high] = range(1);
  const scale = Math.min(
    (width - 2 * margin) / (right - left || 1e-9),
    (height - 2 * margin) / (high - low || 1e-9),
    1e9,
  );
  const middle = [(left + right) / 2, (low + high) / 2] as const;
  const at = points.map(([x, y]): Point => {
    const [across, down] = [width / 2 + (x - middle[0]) * scale, height / 2 - (y - middle[1]) * scale];
    return [width / 2 + (across - view.x * width) * view.zoom, height / 2 + (down - view.y * height) * view.zoom];
  });
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
  const inside = (point: number) =>
    at[point]![0] >= 0 && at[point]![0] <= width && at[point]![1] >= 0 && at[point]![1] <= height;
  outline(painter, 0.5, 0.5, width - 1, height - 1, rule);
  if (width > 200 && style.explained.length) {
    painter.text(`component 1: ${fixedPercent(style.explained[0]!, 1)} of the variance →`, width - 8, height - 12, {
      size: 12,
      color: muted,
      align: "right",
    });
    painter.text(`component 2: ${fixedPercent(style.explained[1]!, 1)} →`, 12, height - 8, {
      size: 12,
      color: muted,
      rotated: true,
    });
  }
  const dot = (point: number, color: string) => {
    const [x, y] = at[point]!;
    const sign = marker(style.group(point));
    // a border that separates overlapping points
    painter.text(sign, x, y, { size: style.size + 3, align: "center", color: page });
    painter.text(sign, x, y, { size: style.size, align: "center", color });
  };
  const highlighted = (point: number) => !style.highlighted || style.highlighted.has(point);
  at.forEach((_, point) => !highlighted(point) && inside(point) && dot(point, rule));
  at.forEach((_, point) => highlighted(point) && inside(point) && dot(point, series(style.group(point))));
  if (style.selected !== undefined && inside(style.selected))
    drawNeighbors(painter, layout, style.selected, style.neighbors ?? [], style.size, ink);
  if (style.label) drawPointLabels(painter, layout, style.size, style.label, inside);
}

const [LABEL_SIZE, LABEL_CHARACTER] = [12, 6.6]; // pixels

/** A label beside each point, moved up or down where it would cover another. */
function drawPointLabels(
  painter: Painter,
  { width, at }: PlotLayout,
  size: number,
  label: (point: number) => string,
  inside: (point: number) => boolean,
): void {
  const taken: (readonly [number, number, number])[] = []; // left, right and middle
  const { ink } = colors.get();
  at.forEach(([x, y], point) => {
    if (!inside(point)) return;
    const text = label(point);
    const length = [...text].length * LABEL_CHARACTER;
    const onLeft = x + length + size > width;
    const edge = x + (onLeft ? -1 : 1) * (size * 0.5 + 3);
    const [left, right] = onLeft ? [edge - length, edge] : [edge, edge + length];
    const free = (middle: number) =>
      taken.every(([from, to, other]) => right < from || left > to || Math.abs(other - middle) >= LABEL_SIZE);
    const middle = [0, -13, 13, -26, 26].map((shift) => y + shift).find(free) ?? y;
    taken.push([left, right, middle]);
    painter.text(text, edge, middle, { size: LABEL_SIZE, align: onLeft ? "right" : "left", color: ink });
  });
}

/** A frame around a point, and lines from it to its neighbors. */
function drawNeighbors(
  painter: Painter,
  { at }: PlotLayout,
  point: number,
  neighbors: readonly number[],
  size: number,
  color: string,
): void {
  const [x, y] = at[point]!;
  painter.lines(
    neighbors.flatMap((other) => [x, y, ...at[other]!]),
    color,
    0.7,
    false,
    1.3,
  );
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
  /** The part that is shown, and how to change it: the wheel, dragging, and keys. */
  readonly view?: Viewport;
  onView?(view: Viewport): void;
  /** Whether points glide to new positions. */
  readonly moves?: boolean;
}

const DURATION = 450; // milliseconds

/** Positions on their way from the previous ones to new ones; at once if the user prefers reduced motion. */
function useGliding(layout: PlotLayout, moves: boolean): PlotLayout {
  const before = useRef<PlotLayout>(layout);
  const [shown, setShown] = useState(layout);
  useEffect(() => {
    const from = before.current;
    before.current = layout;
    const still =
      !moves ||
      from.at.length !== layout.at.length ||
      from.width !== layout.width ||
      matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still || from === layout) return setShown(layout);
    const start = performance.now();
    let frame = requestAnimationFrame(function step(now: number) {
      const part = Math.min(1, Math.max(0, (now - start) / DURATION));
      const eased = part * part * (3 - 2 * part);
      const at = layout.at.map(
        ([x, y], point): Point => [
          from.at[point]![0] + (x - from.at[point]![0]) * eased,
          from.at[point]![1] + (y - from.at[point]![1]) * eased,
        ],
      );
      setShown(part < 1 ? { ...layout, at } : layout);
      if (part < 1) frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [layout, moves]);
  return shown.at.length === layout.at.length && shown.width === layout.width ? shown : layout;
}

const STEP = 1.4; // of zoom, for a key or a press

/** The wheel, dragging and keys change the part that is shown. */
function useZoom(
  element: { readonly current: HTMLElement | null },
  width: number,
  height: number,
  view: Viewport,
  onView: ((view: Viewport) => void) | undefined,
) {
  const dragged = useRef<{ readonly x: number; readonly y: number; readonly from: Viewport } | null>(null);
  const moved = useRef(false); // by the last drag, which then was no click
  const current = useRef(view);
  current.current = view;
  useEffect(() => {
    const target = element.current;
    if (!target || !onView) return;
    const onWheel = (event: WheelEvent) => {
      const { zoom, x, y } = current.current;
      const factor = Math.exp(-event.deltaY / 300);
      if (zoom === 1 && factor < 1) return; // the page scrolls
      event.preventDefault();
      const { left, top } = target.getBoundingClientRect();
      const next = Math.max(1, Math.min(MAX_ZOOM, zoom * factor));
      // The point under the pointer stays where it is.
      const keep = (value: number, pixel: number, size: number) => value + (pixel / size - 0.5) * (1 / zoom - 1 / next);
      onView(viewport(next, keep(x, event.clientX - left, width), keep(y, event.clientY - top, height)));
    };
    target.addEventListener("wheel", onWheel, { passive: false });
    return () => target.removeEventListener("wheel", onWheel);
  }, [onView, width, height]);
  const onKeyDown = (event: KeyboardEvent) => {
    const { zoom, x, y } = view;
    const shift = 0.15 / zoom;
    const views: Record<string, Viewport> = {
      "+": viewport(zoom * STEP, x, y),
      "=": viewport(zoom * STEP, x, y),
      "-": viewport(zoom / STEP, x, y),
      "0": WHOLE,
      ArrowLeft: viewport(zoom, x - shift, y),
      ArrowRight: viewport(zoom, x + shift, y),
      ArrowUp: viewport(zoom, x, y - shift),
      ArrowDown: viewport(zoom, x, y + shift),
    };
    const next = views[event.key];
    if (!next || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    onView?.(next);
  };
  const drag = {
    onPointerDown: (event: PointerEvent) => {
      dragged.current = { x: event.clientX, y: event.clientY, from: view };
      moved.current = false;
      (event.currentTarget as Element).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const one = dragged.current;
      if (!one || !onView) return;
      const [dx, dy] = [event.clientX - one.x, event.clientY - one.y];
      if (!moved.current && Math.hypot(dx, dy) < 4) return;
      moved.current = true;
      if (one.from.zoom > 1)
        onView(
          viewport(one.from.zoom, one.from.x - dx / width / one.from.zoom, one.from.y - dy / height / one.from.zoom),
        );
    },
    onPointerUp: () => (dragged.current = null),
  };
  return { onKeyDown, drag, moved };
}

export function ZoomButtons({ view, onView }: { view: Viewport; onView(view: Viewport): void }) {
  return (
    <fieldset>
      <legend>Zoom</legend>
      <span class="group">
        <button
          type="button"
          aria-label="Zoom out"
          disabled={view.zoom === 1}
          onClick={() => onView(viewport(view.zoom / STEP, view.x, view.y))}
        >
          −
        </button>
        <button
          type="button"
          aria-label="Zoom in"
          disabled={view.zoom >= MAX_ZOOM}
          onClick={() => onView(viewport(view.zoom * STEP, view.x, view.y))}
        >
          +
        </button>
        <button type="button" disabled={view.zoom === 1} onClick={() => onView(WHOLE)}>
          all
        </button>
      </span>
      {view.zoom > 1 && <span class="muted">× {view.zoom.toFixed(1)}</span>}
    </fieldset>
  );
}

export function ScatterPlot({
  points,
  style,
  label,
  height,
  describe,
  neighbors,
  onSelect,
  view = WHOLE,
  onView,
  moves = false,
}: Props) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [pointed, setPointed] = useState(-1);
  const final = useMemo(
    () => layoutOf(points, width, height, MARGIN, view),
    [points, width, height, view.zoom, view.x, view.y],
  );
  const layout = useGliding(final, moves);
  const zooming = useZoom(element, width, height, view, onView);
  const at = pointed >= 0 ? layout.at[pointed] : undefined;
  const pointAt = (event: MouseEvent) => {
    const { x, y } = pointerIn(event);
    return layout.nearest(x, y);
  };
  const canvas = {
    class: pointed >= 0 && onSelect ? "pointed" : "",
    ...(onView && { onPointerDown: zooming.drag.onPointerDown, onPointerUp: zooming.drag.onPointerUp }),
    onPointerMove: (event: PointerEvent) => {
      zooming.drag.onPointerMove(event);
      setPointed(pointAt(event));
    },
    onPointerLeave: () => setPointed(-1),
    onClick: (event: MouseEvent) => {
      if (zooming.moved.current) return;
      const point = pointAt(event);
      if (point >= 0) onSelect?.(point);
    },
  };
  return (
    <div
      class="plane"
      ref={element}
      {...(onView && {
        tabIndex: 0,
        role: "group",
        "aria-label": "Map; plus and minus zoom, arrow keys move",
        onKeyDown: zooming.onKeyDown,
      })}
    >
      {width > 0 && (
        <Canvas
          width={width}
          height={height}
          label={label}
          inputs={[layout, style]}
          draw={(painter) => drawScatter(painter, layout, style)}
          canvas={canvas}
        />
      )}
      {at && neighbors && (
        <Canvas
          width={width}
          height={height}
          inputs={[layout, pointed]}
          draw={(painter) =>
            drawNeighbors(painter, layout, pointed, neighbors(pointed), style.size, colors.get().accent)
          }
          canvas={{ class: "above" }}
        />
      )}
      {at && (
        <p
          class="tip"
          style={{
            top: `${at[1] + 14}px`,
            ...(at[0] > width / 2 ? { right: `${width - at[0]}px` } : { left: `${at[0]}px` }),
          }}
        >
          {describe(pointed)}
        </p>
      )}
    </div>
  );
}
