// One line a token over a range of numbers: how the difference of two words moves along it.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import type { Route } from "../../route";
import { setParameters, currentRoute } from "../../route";
import type { Painter } from "../../painter";
import { canvasPainter } from "../../painter";
import type { Colors } from "../../theme";
import { colors } from "../../theme";
import type { Drawing, Table } from "../../view";
import type { Sweep } from "./payload";
import { floats } from "./payload";
import { ticks, tintOf } from "./scatter";
import { Reset } from "./show";

const MARGIN = { left: 44, right: 110, top: 12, bottom: 30 };
const LINE = 12; // pixels between two names

function frameOf(payload: Sweep, width: number, height: number) {
  const series = floats(payload.series);
  const two = payload.labels.length === 2;
  let [low, high] = [two ? 0 : Infinity, two ? 0 : -Infinity];
  for (const value of series) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (two) [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
  const wide = width - MARGIN.left - MARGIN.right;
  const tall = height - MARGIN.top - MARGIN.bottom;
  const steps = payload.values.length;
  return {
    two,
    range: [low, high] as const,
    right: MARGIN.left + wide,
    value: (token: number, step: number) => series[token * steps + step]!,
    x: (step: number) => MARGIN.left + (wide * step) / (steps - 1),
    y: (value: number) => MARGIN.top + tall * (1 - (value - low) / (high - low || 1)),
    step: (x: number) => Math.max(0, Math.min(steps - 1, Math.round(((x - MARGIN.left) / wide) * (steps - 1)))),
  };
}

function drawSweep(painter: Painter, payload: Sweep, width: number, height: number, look: Colors, chosen: string): void {
  const { two, range, right, value, x, y } = frameOf(payload, width, height);
  const last = payload.values.length - 1;
  if (two) {
    painter.rect(MARGIN.left, MARGIN.top, right - MARGIN.left, y(0) - MARGIN.top, tintOf(1, look), 0.08);
    painter.rect(MARGIN.left, y(0), right - MARGIN.left, y(range[0]) - y(0), tintOf(-1, look), 0.08);
  }
  for (const tick of ticks(range)) {
    painter.line(MARGIN.left, y(tick), right, y(tick), look.rule, tick === 0 ? 1 : 0.5);
    painter.text(String(Math.round(tick * 100) / 100).replace("-", "−"), MARGIN.left - 6, y(tick), { size: 10, align: "right", color: look.muted });
  }
  const first = payload.values[0]!;
  const years = ticks([first, payload.values[last]!]).filter(Number.isInteger);
  for (const tick of years) painter.text(String(tick), x(tick - first), height - MARGIN.bottom + 14, { size: 10, align: "center", color: look.muted });
  const line = (token: number, color: string, opacity: number, thick: number) => {
    const ends = [];
    for (let step = 0; step < last; step++) ends.push(x(step), y(value(token, step)), x(step + 1), y(value(token, step + 1)));
    painter.lines(ends, color, opacity, false, thick);
  };
  const taken: number[] = [];
  const mark = payload.tokens.indexOf(chosen);
  payload.tokens.forEach((_, token) => token !== mark && line(token, look.ink, 0.16, 1));
  if (mark >= 0) line(mark, look.accent, 1, 2.5);
  const leaning = [...payload.tokens.keys()].sort((one, two) => Math.abs(value(two, last)) - Math.abs(value(one, last)));
  for (const token of [...(mark >= 0 ? [mark] : []), ...leaning]) {
    const at = y(value(token, last));
    if (taken.some((other) => Math.abs(other - at) < LINE)) continue;
    taken.push(at);
    const strong = token === mark;
    painter.text(payload.tokens[token]!, right + 6, at, { size: 11, color: strong ? look.accent : look.muted, bold: strong });
  }
  if (two) {
    painter.text(`${payload.labels[0]} →`, MARGIN.left + 8, MARGIN.top + 10, { size: 12, color: tintOf(1, look) });
    painter.text(`← ${payload.labels[1]}`, MARGIN.left + 8, height - MARGIN.bottom - 10, { size: 12, color: tintOf(-1, look) });
  }
}

export function ShowSweep({ payload }: { payload: Sweep }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, resize] = useState(0);
  const { parameters } = currentRoute.use();
  const look = colors.use();
  const chosen = parameters["token"] ?? "";
  const height = 460;
  useLayoutEffect(() => {
    const measure = () => resize(Math.min(1000, box.current!.clientWidth));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);
  const move = (event: PointerEvent) => {
    const { left, top } = (event.currentTarget as Element).getBoundingClientRect();
    const { step, value, y } = frameOf(payload, width, height);
    const at = step(event.clientX - left);
    let [best, least] = [0, Infinity];
    payload.tokens.forEach((_, token) => {
      const distance = Math.abs(y(value(token, at)) - (event.clientY - top));
      if (distance < least) [best, least] = [token, distance];
    });
    setParameters({ token: payload.tokens[best]! });
  };
  const draw = (context: CanvasRenderingContext2D) => drawSweep(canvasPainter(context, look.ink), payload, width, height, look, chosen);
  const token = payload.tokens.indexOf(chosen);
  const series = floats(payload.series);
  const ends = token < 0 ? [] : [series[token * payload.values.length]!, series[(token + 1) * payload.values.length - 1]!];
  return (
    <section class="compare" aria-label="A range of numbers">
      <p class="caption">{payload.caption}</p>
      <div class="choices">
        <label>
          Token
          <select value={chosen} onChange={(event) => setParameters({ token: event.currentTarget.value })}>
            <option value="">none</option>
            {payload.tokens.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <Reset />
      </div>
      <div ref={box} class="plot">
        <Canvas width={width} height={height} draw={draw} inputs={[payload, width, chosen]} label={payload.caption} canvas={{ onPointerDown: move }} />
      </div>
      <p class="told muted">{ends.length ? `${chosen}: ${ends[0]!.toFixed(2)} at ${payload.values[0]}, ${ends[1]!.toFixed(2)} at ${payload.values.at(-1)}` : "Click a line to name it."}</p>
      <p class="muted warning">⚠ {payload.warning}</p>
    </section>
  );
}

export function sweepDrawing(payload: Sweep, { parameters }: Route): Drawing {
  return { width: 900, height: 460, draw: (painter) => drawSweep(painter, payload, 900, 460, colors.get(), parameters["token"] ?? "") };
}

export function tableOfSweep(payload: Sweep): Table {
  const series = floats(payload.series);
  const steps = payload.values.length;
  return {
    headers: ["token", ...payload.values.map(String)],
    rows: payload.tokens.map((token, row) => [token, ...series.subarray(row * steps, (row + 1) * steps)]),
  };
}
