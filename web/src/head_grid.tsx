// All heads of a model, layers down and heads across: as buttons, and as a drawing.
import type { ComponentChildren } from "preact";
import { layerNumbers, range } from "./format";
import type { Painter } from "./painter";
import { onArrowKeys } from "./route";
import { colors } from "./theme";

interface Props {
  readonly layers: number;
  readonly heads: number;
  /** Index of the head that Tab leads to; arrow keys lead to the others. */
  readonly focused: number;
  onFocus(index: number): void;
  onPress(index: number): void;
  /** Content and attributes of a button. */
  cell(index: number): { readonly text: string; readonly pressed: boolean } & Record<string, unknown>;
  rowStart?(layer: number): ComponentChildren;
  rowEnd?(layer: number): ComponentChildren;
}

export function HeadGrid({ layers, heads, focused, onFocus, onPress, cell, rowStart, rowEnd }: Props) {
  const move = onArrowKeys({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads }, (step, grid) => {
    const at = Number(grid.querySelector<HTMLElement>("[data-at]:focus")?.dataset["at"] ?? "NaN");
    if (Number.isNaN(at) || at + step < 0 || at + step >= layers * heads) return;
    onFocus(at + step);
    grid.querySelector<HTMLElement>(`[data-at="${at + step}"]`)?.focus();
  });
  const button = (index: number) => {
    const { text, pressed, ...attributes } = cell(index);
    return (
      <button
        key={index}
        type="button"
        data-at={index}
        aria-pressed={pressed}
        tabIndex={index === focused ? 0 : -1}
        onClick={() => onPress(index)}
        {...attributes}
      >
        {text}
      </button>
    );
  };
  return (
    <div class="wide">
      <div
        class="head-grid"
        role="group"
        aria-label="Heads"
        style={{ gridTemplateColumns: `auto repeat(${heads}, 40px)${rowEnd ? " auto" : ""}` }}
        onKeyDown={move}
      >
        <span class="at">layer</span>
        {range(heads).map((head) => (
          <span key={head} class="at across">
            {head}
          </span>
        ))}
        {rowEnd && <span />}
        {layerNumbers(layers).map((layer) => [
          rowStart?.(layer) || <span class="at">{layer}</span>,
          ...range(heads).map((head) => button((layer - 1) * heads + head)),
          rowEnd?.(layer),
        ])}
      </div>
    </div>
  );
}

interface DrawnCell {
  readonly layer: number;
  readonly head: number;
  readonly color: string;
  readonly opacity: number;
  readonly text: string;
}

const [CELL_WIDTH, CELL_HEIGHT] = [48, 28];

/** Width and height of a drawn grid without its labels. */
export const headGridSize = (layers: number, heads: number) => [CELL_WIDTH * heads, CELL_HEIGHT * layers] as const;

/** Draws cells with their upper left corner at x and y; labels are above and on the left. */
export function drawHeadGrid(painter: Painter, cells: readonly DrawnCell[], x: number, y: number): void {
  const label = { size: 11, color: colors.get().muted };
  for (const { layer, head, color, opacity, text } of cells) {
    const [left, top] = [x + head * CELL_WIDTH, y + (layer - 1) * CELL_HEIGHT];
    painter.rect(left + 1, top + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, color, opacity);
    painter.text(text, left + CELL_WIDTH / 2, top + CELL_HEIGHT / 2, { align: "center", size: 11 });
    if (!head) painter.text(`layer ${layer}`, x - 8, top + CELL_HEIGHT / 2, { ...label, align: "right" });
    if (layer === 1) painter.text(String(head), left + CELL_WIDTH / 2, y - 10, { ...label, align: "center" });
  }
}
