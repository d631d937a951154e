// The figure with a button over every box: pressed with the mouse, with Tab and Enter, or walked with the arrow keys.
import { Canvas } from "../../canvas";
import { setParameters } from "../../route";
import { useWidth } from "../../canvas";
import { canvasPainter } from "../../painter";
import { colors } from "../../theme";
import { by, type Choice, type FigurePayload } from "./payload";
import { drawFigure } from "./draw";

const LARGEST = 1.25;

export function Diagram({ payload, choice }: { payload: FigurePayload; choice: Choice }) {
  const [element, room] = useWidth<HTMLDivElement>();
  const { layout, boxes } = payload;
  const scale = Math.min(LARGEST, room / layout.width);
  const names = layout.shapes.map((shape) => shape.box);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    const next = step === undefined ? undefined : names[names.indexOf(choice.name) + step];
    if (next === undefined) return;
    event.preventDefault();
    setParameters({ box: next, tensor: "" });
    (event.currentTarget as Element).querySelector<HTMLElement>(`[data-box="${next}"]`)?.focus();
  };
  return (
    <div ref={element}>
      {room > 0 && (
        <div class="figure-diagram" role="group" aria-label="Boxes of the figure, from the inputs up" onKeyDown={move} style={{ width: `${layout.width * scale}px`, height: `${layout.height * scale}px` }}>
          <Canvas
            width={layout.width * scale}
            height={layout.height * scale}
            inputs={[payload, scale, choice.name]}
            draw={(context) => drawFigure(canvasPainter(context, colors.get().ink), payload, scale, choice.name)}
          />
          {layout.shapes.map((shape) => (
            <button
              key={shape.box}
              type="button"
              data-box={shape.box}
              aria-pressed={shape.box === choice.name}
              aria-label={`${boxes[shape.box]!.title}, ${boxes[shape.box]!.part}`}
              title={`${boxes[shape.box]!.title}: ${by(payload.tensors[boxes[shape.box]!.steps[0]!.tensors.at(-1)![1]]!.shape)}`}
              style={{ left: `${shape.x * scale}px`, top: `${shape.y * scale}px`, width: `${shape.width * scale}px`, height: `${shape.height * scale}px` }}
              onClick={() => setParameters({ box: shape.box, tensor: "" })}
            />
          ))}
        </div>
      )}
    </div>
  );
}
