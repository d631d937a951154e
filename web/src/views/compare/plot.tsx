// A scatter on the page: as wide as there is room, with the token under the pointer told in words.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { canvasPainter } from "../../painter";
import { colors } from "../../theme";
import type { Scatter } from "./scatter";
import { drawScatter, nearest } from "./scatter";

interface Props {
  readonly chart: Scatter;
  readonly label: string;
  readonly most: number;
  tell(place: number): string;
}

export function Plot({ chart, label, most, tell }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [size, resize] = useState(0);
  const [under, point] = useState<number>();
  const look = colors.use();
  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => resize(Math.min(most, Math.floor(element.clientWidth)));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, [most]);
  const draw = (context: CanvasRenderingContext2D) => drawScatter(canvasPainter(context, look.ink), chart, { x: 0, y: 0, size }, look);
  const move = (event: PointerEvent) => {
    const { left, top } = (event.currentTarget as Element).getBoundingClientRect();
    point(nearest(chart, { x: 0, y: 0, size }, event.clientX - left, event.clientY - top));
  };
  const shown = under !== undefined && chart.places.includes(under);
  return (
    <div ref={box} class="plot">
      <Canvas width={size} height={size} draw={draw} inputs={[chart, size]} label={label} canvas={{ onPointerMove: move, onPointerDown: move, onPointerLeave: () => point(undefined) }} />
      <p class="told muted">{shown ? tell(under) : " "}</p>
    </div>
  );
}
