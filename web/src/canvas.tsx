// A canvas as sharp as the screen, drawn again when its inputs or the colours change. Knows pixels, no view.
import type { CanvasHTMLAttributes, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { colors } from "./theme";

const LARGEST = 16384; // device pixels of a side

interface Props {
  readonly width: number;
  readonly height: number;
  draw(context: CanvasRenderingContext2D): void;
  /** What the drawing depends on; the colours are always among it. */
  readonly inputs: readonly unknown[];
  readonly label?: string;
  readonly canvas?: CanvasHTMLAttributes<HTMLCanvasElement>;
}

export function Canvas({ width, height, draw, inputs, label, canvas }: Props) {
  const element = useRef<HTMLCanvasElement>(null);
  const look = colors.use();
  useLayoutEffect(() => {
    const context = element.current?.getContext("2d");
    if (!context || !width || !height) return;
    const scale = Math.min(devicePixelRatio || 1, LARGEST / Math.max(width, height));
    context.canvas.width = Math.round(width * scale);
    context.canvas.height = Math.round(height * scale);
    context.scale(scale, scale);
    draw(context);
  }, [width, height, look, ...inputs]);
  const accessible = label ? { role: "img" as const, "aria-label": label } : { "aria-hidden": "true" as const };
  return <canvas ref={element} style={{ width: `${width}px`, height: `${height}px` }} {...accessible} {...canvas} />;
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
