// A matrix as a heat map, with the number of the cell that is pointed at.
import { useMemo, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { useWidth } from "../../canvas";
import { canvasPainter } from "../../painter";
import { colors } from "../../theme";
import { figures, seen, type Matrix } from "./payload";
import { drawHeat, heatOf, largest } from "./draw";

interface Props {
  readonly matrix: Matrix;
  readonly label: string;
  /** Pixels of a row at most. */
  readonly highest?: number;
  /** For which size the colour is full; otherwise the largest there is. */
  readonly full?: number;
}

export function HeatMap({ matrix, label, highest, full }: Props) {
  const [element, room] = useWidth<HTMLDivElement>();
  const [at, point] = useState<readonly [number, number] | null>(null);
  const heat = useMemo(() => heatOf(matrix, Math.max(200, room), highest), [matrix, room, highest]);
  const most = useMemo(() => full ?? largest(matrix.values), [matrix, full]);
  const move = (event: MouseEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - heat.left) / heat.cell[0]);
    const row = Math.floor((event.clientY - box.top - heat.top) / heat.cell[1]);
    const inside = column >= 0 && column < matrix.across && row >= 0 && row < matrix.rows.length;
    point(inside ? [row, column] : null);
  };
  const said = at && at[0] < matrix.rows.length && at[1] < matrix.across;
  return (
    <div ref={element} class="figure-heat">
      {room > 0 && (
        <div class="wide" tabIndex={heat.width > room ? 0 : -1}>
          <Canvas
            width={heat.width}
            height={heat.height}
            inputs={[matrix, heat, most]}
            label={label}
            draw={(context) => drawHeat(canvasPainter(context, colors.get().ink), matrix, heat, most)}
            canvas={{ onMouseMove: move, onMouseLeave: () => point(null) }}
          />
        </div>
      )}
      <p class="note muted">
        {said
          ? `${seen(matrix.rows[at[0]]!)}, ${matrix.columns ? seen(matrix.columns[at[1]]!) : `number ${at[1]}`}: ${figures(matrix.values[at[0] * matrix.across + at[1]]!)}`
          : `Blue is above zero, orange below; full at ±${figures(most)}. Point at a cell for its number.`}
      </p>
    </div>
  );
}
