// The figure with a button over every box.
import { Canvas, useWidth } from "../../canvas";
import { onArrowKeys, setParameters } from "../../route";
import { drawFigure } from "./draw";
import { formatShape, type FigurePayload, type Selection } from "./payload";

const MAX_SCALE = 1.25;

export function Diagram({ payload, selection }: { payload: FigurePayload; selection: Selection }) {
  const [element, room] = useWidth<HTMLDivElement>();
  const { layout, boxes } = payload;
  const scale = Math.min(MAX_SCALE, room / layout.width);
  const size = { width: layout.width * scale, height: layout.height * scale };
  const pixels = (value: number) => `${value * scale}px`;
  const select = (box: string) => setParameters({ box, tensor: "" });
  const move = (event: KeyboardEvent) => {
    const diagram = event.currentTarget as Element;
    onArrowKeys({ ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }, (step) => {
      const next = layout.shapes[layout.shapes.findIndex((shape) => shape.box === selection.name) + step]?.box;
      if (next === undefined) return;
      select(next);
      diagram.querySelector<HTMLElement>(`[data-box="${next}"]`)?.focus();
    })(event);
  };
  return (
    <div ref={element}>
      {room > 0 && (
        <div class="figure-diagram" role="group" aria-label="Boxes of the figure, from the inputs up" onKeyDown={move} style={{ width: `${size.width}px`, height: `${size.height}px` }}>
          <Canvas {...size} inputs={[payload, scale, selection.name]} draw={(painter) => drawFigure(painter, payload, scale, selection.name)} />
          {layout.shapes.map(({ box, x, y, width, height }) => (
            <button
              key={box}
              type="button"
              data-box={box}
              aria-pressed={box === selection.name}
              aria-label={`${boxes[box]!.title}, ${boxes[box]!.part}`}
              title={`${boxes[box]!.title}: ${formatShape(payload.tensors[boxes[box]!.steps[0]!.tensors.at(-1)![1]]!.shape)}`}
              style={{ left: pixels(x), top: pixels(y), width: pixels(width), height: pixels(height) }}
              onClick={() => select(box)}
            />
          ))}
        </div>
      )}
    </div>
  );
}
