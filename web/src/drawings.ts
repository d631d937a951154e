// Exported pictures that consist of parts below each other.
import type { Painter, TextStyle } from "./painter";
import { colors } from "./theme";
import type { Drawing } from "./view";

export const MARGIN = 20;
const CHARACTER = 7.8; // width in pixels in the monospaced font
const LINE = 24;

/** A height, and a function that draws the part at a vertical position. */
export type Part = readonly [height: number, draw: (painter: Painter, y: number) => void];

export function stack(parts: readonly Part[], width: number): Drawing {
  return {
    width,
    height: 2 * MARGIN + parts.reduce((sum, [height]) => sum + height, 0),
    draw(painter) {
      let y = MARGIN;
      for (const [height, draw] of parts) {
        draw(painter, y);
        y += height;
      }
    },
  };
}

export function textPart(text: string, style: TextStyle = {}, height = LINE): Part {
  return [height, (painter, y) => painter.text(text, MARGIN, y + 10, style)];
}

/** Tokens in lines, each on a background; a value from -1 to 1 gives its color. */
export function tokenStripPart(tokens: readonly string[], values: readonly number[], width: number): Part {
  let [x, line] = [MARGIN, 0];
  const boxes = tokens.map((token) => {
    const size = token.length * CHARACTER + 8;
    if (x + size > width - MARGIN) [x, line] = [MARGIN, line + 1];
    const box = { token, left: x, line, size };
    x += size;
    return box;
  });
  const draw = (painter: Painter, y: number) => {
    const { accent, other } = colors.get();
    boxes.forEach(({ token, left, line: row, size }, i) => {
      const [value, top] = [values[i] ?? 0, y + row * LINE];
      painter.rect(left, top, size - 2, 20, value < 0 ? other : accent, 0.6 * Math.min(1, Math.abs(value)));
      painter.text(token, left + 3, top + 10, { mono: true });
    });
  };
  return [(line + 1) * LINE + 8, draw];
}

/** Lines of at most `length` characters, broken at spaces where possible. */
export function wrap(text: string, length: number): string[] {
  const lines: string[] = [];
  let rest = [...text];
  while (rest.length > length) {
    const space = rest.lastIndexOf(" ", length);
    const end = space > 0 ? space : length;
    lines.push(rest.slice(0, end).join(""));
    rest = rest.slice(space > 0 ? end + 1 : end);
  }
  return [...lines, rest.join("")];
}
