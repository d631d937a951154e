// Fill in the blank: the predictions of a model for the blank of two sentences, of a grid of them, or over a range of
// years.
import { floats } from "../binary";
import { Canvas, pointerIn, useWidth } from "../canvas";
import { Select } from "../components";
import { fixedPercent } from "../format";
import type { Painter } from "../painter";
import { currentRoute, integerParameter, type Route, setParameters } from "../route";
import { colors } from "../theme";
import { thumbnails } from "../thumbnails";
import type { Drawing, Table, View } from "../view";
import {
  chartsDrawing,
  chartsTable,
  Reset,
  ShowGrid,
  ShowPair,
  tickLabel,
  ticks,
  tintColor,
  ValueSelect,
  Warning,
} from "./compare/charts";
import "./compare/compare.css";
import { type Comparison, gridParts, type Sentence, type Sweep, selectionOf } from "./compare/selection";

function Show({ payload }: { payload: Comparison }) {
  if (payload.kind === "sentence") return <ShowSentence payload={payload} />;
  if (payload.kind === "sweep") return <ShowSweep payload={payload} />;
  return payload.kind === "grid" ? <ShowGrid payload={payload} /> : <ShowPair payload={payload} />;
}

export const compare: View<Comparison> = {
  name: "compare",
  title: "Fill in the blank",
  about:
    "Which words does a model expect in the blank, _, and how does the sentence change that? [he|she] stands for " +
    "both words, [1860..2018] for a range of years.",
  group: "predict",
  examples: [
    {
      label: "Texas or New York",
      values: { text: "In Texas, they like to buy _.", text_b: "In New York, they like to buy _." },
    },
    { label: "He or she", values: { text: "[He|She] works as a _." } },
    { label: "A grid: who and where", values: { text: "[He|She] went to the [church|school] to _." } },
    { label: "Over the years", values: { text: "In [1860..2018], people traveled by _." } },
    {
      label: "Every word of a sentence",
      values: { text: "The animal did not cross the street because it was too tired." },
    },
  ],
  travels: { text: "text", second: "text_b" },
  Thumbnail: thumbnails.compare,
  finding,
  verb: "compare",
  needs: {
    capability: "masked-lm",
    without: "does not fill in blanks.",
    models: "Models that do",
    advice: "None of the studio's models fills in blanks. Start the studio with a BERT: regard studio --model DIR.",
  },
  fields: [
    { name: "text", label: "Sentence one", start: "In Texas, they like to buy _." },
    { name: "text_b", label: "Sentence two", start: "In New York, they like to buy _.", optional: true },
    { name: "values", label: "Values", start: "log-probabilities", hidden: true },
    { name: "other", label: "Second model (optional)", start: "", optional: true, model: true, fold: true },
  ],
  submitLabel: "Update",
  Show,
  drawing: (payload, route) =>
    payload.kind === "sentence"
      ? sentenceDrawing(payload, route)
      : payload.kind === "sweep"
        ? sweepDrawing(payload, route)
        : chartsDrawing(payload, route),
  table: (payload, route) =>
    payload.kind === "sentence"
      ? sentenceTable(payload, route)
      : payload.kind === "sweep"
        ? sweepTable(payload)
        : chartsTable(payload, route),
};

function finding(payload: Comparison, route: Route): string {
  if (payload.kind === "sweep") return payload.caption;
  if (payload.kind === "sentence") {
    const { word, completions } = payload.words[maskedWord(payload, route)]!;
    const [best] = completions;
    return best
      ? `${payload.model} expects “${best.token}” (${fixedPercent(best.probability, 1)}) ` +
          `${word === "_" ? "in the blank" : `in place of “${word}”`}`
      : "";
  }
  const { chart, number } = selectionOf(payload, route);
  const pair = payload.kind === "grid" ? gridParts(payload, route).coloredBy : 0;
  return payload.pairs[pair]?.captions[chart][String(number)] ?? "";
}

function maskedWord(payload: Sentence, { parameters }: Route): number {
  const blank = payload.words.findIndex(({ word }) => word === "_");
  return integerParameter(parameters, "word", payload.words.length, blank < 0 ? 0 : blank);
}

export function ShowSentence({ payload }: { payload: Sentence }) {
  const masked = maskedWord(payload, currentRoute.use());
  const { word, completions } = payload.words[masked]!;
  return (
    <section class="compare" aria-label="Completions of every word">
      <p class="muted">Click a word to mask it.</p>
      <p class="sentence">
        {payload.words.map((one, number) => (
          <button
            key={number}
            type="button"
            class={one.spaced ? "spaced" : ""}
            aria-pressed={number === masked}
            aria-label={`mask ${one.word}`}
            onClick={() => setParameters({ word: String(number) })}
          >
            {number === masked ? "_".repeat(Math.max(1, one.word.length)) : one.word}
          </button>
        ))}
      </p>
      <p class="caption">
        The {completions.length} most probable words of {payload.model}{" "}
        {word === "_" ? "for the blank" : `in place of “${word}”`}:
      </p>
      <ol class="completions">
        {completions.map(({ token, probability }, number) => (
          <li key={number}>
            <span class="muted">{fixedPercent(probability, 3)}</span> {token}
          </li>
        ))}
      </ol>
      <div class="choices">
        <Reset />
      </div>
      <Warning text={payload.warning} />
    </section>
  );
}

export function sentenceDrawing(payload: Sentence, route: Route): Drawing {
  const masked = maskedWord(payload, route);
  const { completions } = payload.words[masked]!;
  const rows = Math.ceil(completions.length / 3);
  const text = payload.words
    .map((one, number) => (one.spaced && number ? " " : "") + (number === masked ? "_" : one.word))
    .join("");
  return {
    width: 720,
    height: 60 + rows * 20,
    draw(painter) {
      painter.text(text, 16, 24, { size: 16, bold: true });
      completions.forEach(({ token, probability }, number) => {
        const [x, y] = [16 + 235 * Math.floor(number / rows), 60 + 20 * (number % rows)];
        painter.text(fixedPercent(probability, 3), x + 62, y, {
          align: "right",
          mono: true,
          size: 12,
          color: colors.get().muted,
        });
        painter.text(token, x + 74, y, { mono: true, size: 12 });
      });
    },
  };
}

export function sentenceTable(payload: Sentence, route: Route): Table {
  const { word, completions } = payload.words[maskedWord(payload, route)]!;
  return {
    headers: ["hidden", "token", "probability"],
    rows: completions.map(({ token, probability }) => [word, token, probability]),
  };
}

const MARGIN = { left: 44, right: 110, top: 12, bottom: 30 };
const HEIGHT = 460;
const LINE = 12; // pixels between two labels

function frameOf(payload: Sweep, width: number) {
  const series = floats(payload.series);
  const two = payload.labels.length === 2;
  let [low, high] = [two ? 0 : Infinity, two ? 0 : -Infinity];
  for (const value of series) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (two) [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const steps = payload.numbers.length;
  return {
    two,
    range: [low, high] as const,
    right: MARGIN.left + inner.width,
    value: (token: number, step: number) => series[token * steps + step]!,
    x: (step: number) => MARGIN.left + (inner.width * step) / (steps - 1),
    y: (value: number) => MARGIN.top + inner.height * (1 - (value - low) / (high - low || 1)),
    step: (x: number) => Math.max(0, Math.min(steps - 1, Math.round(((x - MARGIN.left) / inner.width) * (steps - 1)))),
  };
}

function drawSweep(painter: Painter, payload: Sweep, width: number, selected: string): void {
  const theme = colors.get();
  const { two, range, right, value, x, y } = frameOf(payload, width);
  const last = payload.numbers.length - 1;
  if (two) {
    painter.rect(MARGIN.left, MARGIN.top, right - MARGIN.left, y(0) - MARGIN.top, tintColor(1, theme), 0.08);
    painter.rect(MARGIN.left, y(0), right - MARGIN.left, y(range[0]) - y(0), tintColor(-1, theme), 0.08);
  }
  for (const tick of ticks(range)) {
    painter.line(MARGIN.left, y(tick), right, y(tick), theme.rule, tick === 0 ? 1 : 0.5);
    painter.text(tickLabel(tick), MARGIN.left - 6, y(tick), { size: 10, align: "right", color: theme.muted });
  }
  const first = payload.numbers[0]!;
  for (const tick of ticks([first, payload.numbers[last]!]).filter(Number.isInteger)) {
    painter.text(String(tick), x(tick - first), HEIGHT - MARGIN.bottom + 14, {
      size: 10,
      align: "center",
      color: theme.muted,
    });
  }
  const line = (token: number, color: string, opacity: number, thickness: number) => {
    const ends = [];
    for (let step = 0; step < last; step++)
      ends.push(x(step), y(value(token, step)), x(step + 1), y(value(token, step + 1)));
    painter.lines(ends, color, opacity, false, thickness);
  };
  const marked = payload.tokens.indexOf(selected);
  payload.tokens.forEach((_, token) => token !== marked && line(token, theme.ink, 0.16, 1));
  if (marked >= 0) line(marked, theme.accent, 1, 2.5);
  const byDifference = [...payload.tokens.keys()].sort(
    (one, other) => Math.abs(value(other, last)) - Math.abs(value(one, last)),
  );
  const taken: number[] = [];
  for (const token of [...(marked >= 0 ? [marked] : []), ...byDifference]) {
    const at = y(value(token, last));
    if (taken.some((other) => Math.abs(other - at) < LINE)) continue;
    taken.push(at);
    painter.text(payload.tokens[token]!, right + 6, at, {
      size: 11,
      color: token === marked ? theme.accent : theme.muted,
      bold: token === marked,
    });
  }
  if (two) {
    painter.text(`${payload.labels[0]} →`, MARGIN.left + 8, MARGIN.top + 10, { size: 12, color: tintColor(1, theme) });
    painter.text(`← ${payload.labels[1]}`, MARGIN.left + 8, HEIGHT - MARGIN.bottom - 10, {
      size: 12,
      color: tintColor(-1, theme),
    });
  }
}

export function ShowSweep({ payload }: { payload: Sweep }) {
  const [element, room] = useWidth<HTMLDivElement>();
  const width = Math.min(1000, room);
  const selected = currentRoute.use().parameters["token"] ?? "";
  const { step, value, y } = frameOf(payload, width);
  const select = (event: PointerEvent) => {
    const pointer = pointerIn(event);
    const at = step(pointer.x);
    let [best, least] = [0, Infinity];
    payload.tokens.forEach((_, token) => {
      const distance = Math.abs(y(value(token, at)) - pointer.y);
      if (distance < least) [best, least] = [token, distance];
    });
    setParameters({ token: payload.tokens[best]! });
  };
  const token = payload.tokens.indexOf(selected);
  const last = payload.numbers.length - 1;
  return (
    <section class="compare" aria-label="A range of numbers">
      <div class="choices">
        <Select
          label="Token"
          options={payload.tokens}
          value={selected}
          empty="none"
          onSelect={(one) => setParameters({ token: one })}
        />
        <ValueSelect values={payload.values} />
        <Reset />
      </div>
      <div ref={element} class="plot">
        <Canvas
          width={width}
          height={HEIGHT}
          draw={(painter) => drawSweep(painter, payload, width, selected)}
          inputs={[payload, selected]}
          label={payload.caption}
          canvas={{ onPointerDown: select }}
        />
      </div>
      <p class="status muted">
        {token < 0
          ? "Click a line to select its token."
          : `${selected}: ${value(token, 0).toFixed(2)} at ${payload.numbers[0]}, ${value(token, last).toFixed(2)} ` +
            `at ${payload.numbers[last]}`}
      </p>
      <Warning text={payload.warning} />
    </section>
  );
}

export function sweepDrawing(payload: Sweep, { parameters }: Route): Drawing {
  return { width: 900, height: HEIGHT, draw: (painter) => drawSweep(painter, payload, 900, parameters["token"] ?? "") };
}

export function sweepTable(payload: Sweep): Table {
  const series = floats(payload.series);
  const steps = payload.numbers.length;
  return {
    headers: ["token", ...payload.numbers.map(String)],
    rows: payload.tokens.map((token, row) => [token, ...series.subarray(row * steps, (row + 1) * steps)]),
  };
}
