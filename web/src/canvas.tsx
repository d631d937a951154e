// A canvas at the resolution of the screen, redrawn when its inputs or the theme change.
import type { CanvasHTMLAttributes, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { canvasPainter, type Painter } from "./painter";
import { colors } from "./theme";

const MAX_SIDE = 16384; // device pixels

interface Props {
  readonly width: number;
  readonly height: number;
  draw(painter: Painter, context: CanvasRenderingContext2D): void;
  /** What the drawing depends on besides the theme. */
  readonly inputs: readonly unknown[];
  readonly label?: string;
  readonly canvas?: CanvasHTMLAttributes<HTMLCanvasElement>;
}

export function Canvas({ width, height, draw, inputs, label, canvas }: Props) {
  const element = useRef<HTMLCanvasElement>(null);
  const theme = colors.use();
  useLayoutEffect(() => {
    const context = element.current?.getContext("2d");
    if (!context || !width || !height) return;
    const zoom = (context.canvas as { currentCSSZoom?: number }).currentCSSZoom ?? 1;
    const scale = Math.min((devicePixelRatio || 1) * zoom, MAX_SIDE / Math.max(width, height));
    context.canvas.width = Math.round(width * scale);
    context.canvas.height = Math.round(height * scale);
    context.scale(scale, scale);
    draw(canvasPainter(context, theme.ink), context);
  }, [width, height, theme, ...inputs]);
  const accessible = label ? { role: "img" as const, "aria-label": label } : { "aria-hidden": "true" as const };
  return <canvas ref={element} style={{ width: `${width}px`, height: `${height}px` }} {...accessible} {...canvas} />;
}

/** Where the pointer is relative to the element of the handler, in pixels and as fractions of its size. */
export function pointerIn(event: MouseEvent): {
  readonly x: number;
  readonly y: number;
  readonly across: number;
  readonly down: number;
} {
  const { left, top, width, height } = (event.currentTarget as Element).getBoundingClientRect();
  const [x, y] = [event.clientX - left, event.clientY - top];
  return { x, y, across: x / width, down: y / height };
}

/** Ref and current width in pixels of an element; updated when it is resized. */
export function useWidth<E extends HTMLElement>(): [RefObject<E | null>, number] {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const measure = () => setWidth(Math.floor(element.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}
