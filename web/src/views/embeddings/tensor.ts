// The tensor of hidden states as a box: texts downwards, tokens to the right, numbers into the depth; the slice that is
// kept is marked. Knows shapes; the box's own proportions are the same for every shape.
import type { Painter } from "../../painter";
import { colors } from "../../theme";

export const BOX = { width: 362, height: 226 };

const [LEFT, TOP, WIDE, HIGH, DEEP] = [34, 60, 180, 120, 48];

/** `slice`: "cls" marks the first token of every text, "mean" all of them, null none. */
export function drawTensor(painter: Painter, shape: readonly number[], slice: string | null): void {
  const { ink, muted, other, accent } = colors.get();
  const [texts, tokens, width] = shape.map((size) => size.toLocaleString("en")) as [string, string, string];
  const marked = slice === "cls" ? WIDE / 8 : slice === "mean" ? WIDE : 0;
  painter.rect(LEFT, TOP, WIDE, HIGH, accent, 0.12);
  if (marked) {
    painter.rect(LEFT, TOP, marked, HIGH, other, 0.45);
    // The side that goes into the depth, as slanted strokes: the painter has no polygons.
    for (let x = 0; x < marked; x += 2) painter.lines([LEFT + x, TOP, LEFT + x + DEEP, TOP - DEEP], other, 0.3, false, 2);
  }
  const front = [LEFT, TOP, LEFT + WIDE, TOP, LEFT + WIDE, TOP, LEFT + WIDE, TOP + HIGH, LEFT + WIDE, TOP + HIGH, LEFT, TOP + HIGH, LEFT, TOP + HIGH, LEFT, TOP];
  const back = [LEFT, TOP, LEFT + DEEP, TOP - DEEP, LEFT + WIDE, TOP, LEFT + WIDE + DEEP, TOP - DEEP, LEFT + WIDE, TOP + HIGH, LEFT + WIDE + DEEP, TOP + HIGH - DEEP];
  const rim = [LEFT + DEEP, TOP - DEEP, LEFT + WIDE + DEEP, TOP - DEEP, LEFT + WIDE + DEEP, TOP - DEEP, LEFT + WIDE + DEEP, TOP + HIGH - DEEP];
  painter.lines([...front, ...back, ...rim], ink, 0.9, false, 1.2);
  const columns = Array.from({ length: 7 }, (_, number) => LEFT + ((number + 1) * WIDE) / 8).flatMap((x) => [x, TOP, x, TOP + HIGH]);
  painter.lines(columns, muted, 0.4, false, 1);
  painter.text(`${texts} texts`, LEFT - 12, TOP + HIGH / 2, { size: 13, align: "center", turned: true });
  painter.text(`${tokens} tokens`, LEFT + WIDE / 2, TOP + HIGH + 14, { size: 13, align: "center" });
  painter.text(`${width} numbers`, LEFT + WIDE + DEEP + 8, TOP - DEEP + 8, { size: 13 });
  if (slice === "cls") painter.text("[:, 0, :]", LEFT + marked / 2, TOP + HIGH + 30, { size: 12, align: "center", mono: true, color: other });
}
