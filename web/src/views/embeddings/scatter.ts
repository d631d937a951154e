// Points on a plane, drawn on a screen or into a file. Knows pixels; knows nothing of what the points are.
import type { Painter } from "../../painter";
import { colors, series } from "../../theme";

export type Point = readonly [number, number];

/** Where points lie in a picture. Both axes have one scale, so distances are those of the plane. */
export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly at: readonly Point[];
  /** The place of the point nearest to a pixel, or -1 where none is near. */
  near(x: number, y: number): number;
}

export interface Look {
  readonly explained: readonly number[];
  /** Which colour and sign a point has. */
  kind(place: number): number;
  /** What stands beside a point. */
  name?(place: number): string;
  readonly size: number;
  /** Points that are not faded; all where it is not given. */
  readonly bright?: ReadonlySet<number>;
  readonly chosen?: number;
  /** Points joined to the chosen one. */
  readonly joined?: readonly number[];
}

const REACH = 14; // pixels
const EDGE = 34; // room for the names of the axes
// Told apart without colours as well.
const SIGNS = ["●", "▲", "■", "◆", "★", "✚", "▼", "✖"];

export function sign(kind: number): string {
  return SIGNS[kind % SIGNS.length]!;
}

export function layoutOf(points: readonly Point[], width: number, height: number, edge = EDGE): Layout {
  const range = (axis: 0 | 1) => {
    const values = points.map((point) => point[axis]);
    return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)] as const;
  };
  const [left, right] = range(0);
  const [low, high] = range(1);
  const scale = Math.min((width - 2 * edge) / (right - left || 1e-9), (height - 2 * edge) / (high - low || 1e-9), 1e9);
  const middle = [(left + right) / 2, (low + high) / 2] as const;
  const at = points.map(([x, y]): Point => [width / 2 + (x - middle[0]) * scale, height / 2 - (y - middle[1]) * scale]);
  return {
    width,
    height,
    at,
    near(x, y) {
      let found = -1;
      let least = REACH ** 2;
      at.forEach(([px, py], place) => {
        const distance = (px - x) ** 2 + (py - y) ** 2;
        if (distance < least) [found, least] = [place, distance];
      });
      return found;
    },
  };
}

export function drawScatter(painter: Painter, layout: Layout, look: Look): void {
  const { muted, rule, ink, page } = colors.get();
  const { width, height, at } = layout;
  painter.rect(0, 0, width, 1, rule);
  painter.rect(0, height - 1, width, 1, rule);
  painter.rect(0, 0, 1, height, rule);
  painter.rect(width - 1, 0, 1, height, rule);
  const share = (component: number) => `${(100 * look.explained[component]!).toFixed(1)}%`;
  if (width > 200) {
    painter.text(`component 1: ${share(0)} of the variance →`, width - 8, height - 12, { size: 12, color: muted, align: "right" });
    painter.text(`component 2: ${share(1)} →`, 12, height - 8, { size: 12, color: muted, turned: true });
  }
  const faded = look.bright ? at.map((_, place) => place).filter((place) => !look.bright!.has(place)) : [];
  for (const place of faded) dot(place, rule);
  at.forEach((_, place) => (!look.bright || look.bright.has(place)) && dot(place, series(look.kind(place))));
  if (look.chosen !== undefined) drawJoined(painter, layout, look.chosen, look.joined ?? [], look.size, ink);
  if (look.name) {
    at.forEach(([x, y], place) => {
      const back = x > width - 40;
      painter.text(look.name!(place), x + (back ? -1 : 1) * (look.size * 0.5 + 3), y, { size: 12, align: back ? "right" : "left", color: ink });
    });
  }
  function dot(place: number, color: string): void {
    const [x, y] = at[place]!;
    const mark = sign(look.kind(place));
    painter.text(mark, x, y, { size: look.size + 3, align: "center", color: page }); // a rim, so that neighbours stay apart
    painter.text(mark, x, y, { size: look.size, align: "center", color });
  }
}

/** A frame around a point, and strokes from it to others; above the points, where they can be seen. */
export function drawJoined(painter: Painter, { at }: Layout, place: number, joined: readonly number[], size: number, color: string): void {
  const [x, y] = at[place]!;
  painter.lines(joined.flatMap((other) => [x, y, ...at[other]!]), color, 0.7, false, 1.3);
  const [left, right, top, low] = [x - size * 0.8, x + size * 0.8, y - size * 0.8, y + size * 0.8];
  painter.lines([left, top, right, top, right, top, right, low, right, low, left, low, left, low, left, top], color, 1, false, 1.6);
}
