// A scatter of tokens: points coloured by a difference, with as many names as there is room for. Knows no payload.
import { ticks as roundNumbers } from "d3-array";
import type { Painter } from "../../painter";
import type { Colors } from "../../theme";
import type { Axes } from "./payload";

export interface Scatter {
  readonly names: readonly string[];
  readonly places: Uint32Array;
  x(place: number): number;
  y(place: number): number;
  /** From -1, the second sentence's colour, to 1, the first's. */
  tint(place: number): number;
  readonly across: readonly [number, number];
  readonly up: readonly [number, number];
  readonly axes: Axes;
  /** What an axis' end belongs to: the first sentence ("a"), the second ("b") or neither. */
  readonly sides: Readonly<Partial<Record<keyof Axes, "a" | "b">>>;
  readonly diagonal: boolean;
  readonly dot: number;
}

const SIZE = 11; // of a name
const LETTER = 6.1; // pixels a character of that size takes, about
const MARGIN = { left: 44, right: 30, top: 10, bottom: 46 };

export function tintOf(tint: number, look: Colors): string {
  const end = tint > 0 ? look.other : look.accent;
  const share = Math.min(1, Math.abs(tint));
  const grey = look.dark ? "#8b949e" : "#8c959f";
  const mixed = [1, 3, 5].map((at) => {
    const from = Number.parseInt(grey.slice(at, at + 2), 16);
    const to = Number.parseInt(end.slice(at, at + 2), 16);
    return Math.round(from + (to - from) * share).toString(16).padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}

/** Round numbers in a range, some six of them. */
export function ticks([low, high]: readonly [number, number]): number[] {
  return roundNumbers(low, high, 6);
}

/** Where a scatter goes: the square whose upper left corner is here. */
export interface Room {
  readonly x: number;
  readonly y: number;
  readonly size: number;
}

interface Frame {
  x(value: number): number;
  y(value: number): number;
  readonly left: number;
  readonly top: number;
  readonly wide: number;
  readonly high: number;
}

function frameOf(chart: Scatter, room: Room): Frame {
  const wide = room.size - MARGIN.left - MARGIN.right;
  const high = room.size - MARGIN.top - MARGIN.bottom;
  const [left, top] = [room.x + MARGIN.left, room.y + MARGIN.top];
  const span = (range: readonly [number, number]) => range[1] - range[0] || 1;
  return {
    left,
    top,
    wide,
    high,
    x: (value) => left + (wide * (value - chart.across[0])) / span(chart.across),
    y: (value) => top + high - (high * (value - chart.up[0])) / span(chart.up),
  };
}

export function drawScatter(painter: Painter, chart: Scatter, room: Room, look: Colors): void {
  const frame = frameOf(chart, room);
  drawAxes(painter, chart, frame, look);
  const { x, y } = frame;
  const half = chart.dot / 2;
  for (const place of chart.places) {
    painter.rect(x(chart.x(place)) - half, y(chart.y(place)) - half, chart.dot, chart.dot, tintOf(chart.tint(place), look), 0.75);
  }
  for (const name of named(chart, frame)) {
    painter.text(name.text, name.x, name.y, { size: SIZE, color: look.ink, align: name.align });
  }
}

function drawAxes(painter: Painter, chart: Scatter, { x, y, left, top, wide, high }: Frame, look: Colors): void {
  const right = left + wide;
  const bottom = top + high;
  const said = (value: number) => String(Math.round(value * 100) / 100).replace("-", "−");
  for (const tick of ticks(chart.across)) {
    painter.line(x(tick), top, x(tick), bottom, look.rule, tick === 0 ? 1 : 0.6);
    painter.text(said(tick), x(tick), bottom + 11, { size: 10, align: "center", color: look.muted });
  }
  for (const tick of ticks(chart.up)) {
    painter.line(left, y(tick), right, y(tick), look.rule, tick === 0 ? 1 : 0.6);
    painter.text(said(tick), left - 6, y(tick), { size: 10, align: "right", color: look.muted });
  }
  if (chart.diagonal) {
    const low = Math.max(chart.across[0], chart.up[0]);
    const high = Math.min(chart.across[1], chart.up[1]);
    if (low < high) painter.line(x(low), y(low), x(high), y(high), look.muted, 0.7);
  }
  const color = (end: keyof Axes) => (chart.sides[end] ? tintOf(chart.sides[end] === "a" ? 1 : -1, look) : look.ink);
  const { axes } = chart;
  const below = bottom + 32;
  const middle = left + wide / 2;
  const size = wide < 300 ? 12 : 13;
  if (axes.left) {
    painter.text(axes.left, middle - 8, below, { size, align: "right", color: color("left") });
    painter.text(axes.right, middle + 8, below, { size, color: color("right") });
  } else {
    painter.text(axes.right, middle, below, { size, align: "center", color: color("right") });
  }
  const beside = right + 18;
  const centre = top + high / 2;
  if (axes.down) {
    painter.text(axes.down, beside, centre + 8, { size, align: "right", turned: true, color: color("down") });
    painter.text(axes.up, beside, centre - 8, { size, turned: true, color: color("up") });
  } else {
    painter.text(axes.up, beside, centre, { size, align: "center", turned: true, color: color("up") });
  }
}

interface Name {
  readonly text: string;
  readonly x: number;
  readonly y: number;
  readonly align: "left" | "right";
}

/** Names that do not lie on each other: first those that lean most, in turn with the likeliest. */
function named(chart: Scatter, { x, y, left, wide }: Frame): Name[] {
  const leaning = Array.from(chart.places).sort((one, two) => Math.abs(chart.tint(two)) - Math.abs(chart.tint(one)));
  const taken = new Set<string>();
  const found: Name[] = [];
  const seen = new Set<number>();
  const cell = 7;
  const most = Math.max(40, (wide * wide) / 1500);
  for (let turn = 0; turn < leaning.length && turn < 1500 && found.length < most; turn++) {
    for (const place of [chart.places[turn]!, leaning[turn]!]) {
      if (seen.has(place)) continue;
      seen.add(place);
      const text = chart.names[place]!;
      const length = text.length * LETTER;
      const at = { x: x(chart.x(place)), y: y(chart.y(place)) };
      const turned = at.x + length + 6 > left + wide;
      const start = turned ? at.x - length - 5 : at.x + 5;
      const boxes: string[] = [];
      for (let column = Math.floor(start / cell); column <= Math.floor((start + length) / cell); column++) {
        for (let row = Math.floor((at.y - 5) / cell); row <= Math.floor((at.y + 5) / cell); row++) boxes.push(`${column},${row}`);
      }
      if (boxes.some((box) => taken.has(box)) || start < left - 30) continue;
      boxes.forEach((box) => taken.add(box));
      found.push({ text, x: turned ? at.x - 5 : at.x + 5, y: at.y, align: turned ? "right" : "left" });
    }
  }
  return found;
}

/** The token nearest to a point of the drawing, not further away than a finger is wide. */
export function nearest(chart: Scatter, room: Room, px: number, py: number): number | undefined {
  const { x, y } = frameOf(chart, room);
  let best: number | undefined;
  let least = 20 * 20;
  for (const place of chart.places) {
    const distance = (x(chart.x(place)) - px) ** 2 + (y(chart.y(place)) - py) ** 2;
    if (distance < least) [best, least] = [place, distance];
  }
  return best;
}
