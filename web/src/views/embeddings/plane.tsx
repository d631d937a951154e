// A scatter one can point at: hovering says what a point is, a click keeps it. Knows points and pixels.
import { useMemo, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { useWidth } from "../../canvas";
import { canvasPainter } from "../../painter";
import { colors } from "../../theme";
import { drawJoined, drawScatter, layoutOf, type Look, type Point } from "./scatter";

interface Props {
  readonly points: readonly Point[];
  readonly look: Look;
  readonly label: string;
  readonly height: number;
  /** What hovering says of a point. */
  tell(place: number): string;
  /** Which points a hovered one is joined to. */
  joined?(place: number): readonly number[];
  onChoose?(place: number): void;
}

export function Plane({ points, look, label, height, tell, joined, onChoose }: Props) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [over, setOver] = useState(-1);
  const layout = useMemo(() => layoutOf(points, width, height), [points, width, height]);
  const at = over >= 0 ? layout.at[over] : undefined;
  const find = (event: PointerEvent | MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return layout.near(event.clientX - box.left, event.clientY - box.top);
  };
  const canvas = {
    class: over >= 0 && onChoose ? "pointed" : "",
    onPointerMove: (event: PointerEvent) => setOver(find(event)),
    onPointerLeave: () => setOver(-1),
    onClick: (event: MouseEvent) => {
      const place = find(event);
      if (place >= 0) onChoose?.(place);
    },
  };
  return (
    <div class="plane" ref={element}>
      {width > 0 && (
        <Canvas
          width={width}
          height={height}
          label={label}
          inputs={[layout, look]}
          draw={(context) => drawScatter(canvasPainter(context, colors.get().ink), layout, look)}
          canvas={canvas}
        />
      )}
      {at && joined && (
        <Canvas
          width={width}
          height={height}
          inputs={[layout, over]}
          draw={(context) => {
            const { accent, ink } = colors.get();
            drawJoined(canvasPainter(context, ink), layout, over, joined(over), look.size, accent);
          }}
          canvas={{ class: "above" }}
        />
      )}
      {at && (
        <p class="tip" style={{ top: `${at[1] + 14}px`, ...(at[0] > width / 2 ? { right: `${width - at[0]}px` } : { left: `${at[0]}px` }) }}>
          {tell(over)}
        </p>
      )}
    </div>
  );
}
