// A story: texts, tables, heat maps and charts below each other, as lessons write them (src/regard/render/story.py).
import { useMemo, useState } from "preact/hooks";
import { Canvas, pointerIn } from "../canvas";
import { DataTable, ScrollRegion } from "../components";
import { outline, type Painter, translated } from "../painter";
import { colors } from "../theme";
import type { BarChart, Diagram, HeatMap, LineChart, NumberMatrix, PatchSequence, Story, StoryTable } from "../types";
import type { Drawing, Payload, View } from "../view";
import { barDrawing, CHARACTER, diagramDrawing, type FigureDrawing, longest, numbersDrawing } from "./story/figures";
import "./story/story.css";

export type Block = Story["blocks"][number];
type StoryPayload = Story & Payload;

/** The blocks and those inside them in reading order. */
function flatten(blocks: readonly Block[]): Block[] {
  return blocks.flatMap((block) => ("blocks" in block ? [block, ...flatten(block.blocks)] : [block]));
}

function Show({ payload }: { payload: StoryPayload }) {
  return (
    <div class="story">
      <Blocks blocks={payload.blocks} />
    </div>
  );
}

export function Blocks({ blocks }: { blocks: readonly Block[] }) {
  return (
    <>
      {blocks.map((block, number) => (
        <ShowBlock key={number} block={block} />
      ))}
    </>
  );
}

function ShowBlock({ block }: { block: Block }) {
  switch (block.kind) {
    case "text":
      return <p>{block.text}</p>;
    case "section":
      return (
        <section>
          <h2>{block.heading}</h2>
          <Blocks blocks={block.blocks} />
        </section>
      );
    case "figures":
      return (
        <div class="figures">
          <Blocks blocks={block.blocks} />
        </div>
      );
    case "patches":
      return <ShowPatches block={block} />;
    case "table":
      return <ShowTable table={block} />;
    default:
      return <ShowFigure figure={block} />;
  }
}

/** The image cut apart, and the same patches in a row after [CLS]. */
function ShowPatches({ block }: { block: PatchSequence }) {
  const patches = block.patches.map((source, number) => (
    <li key={number}>
      <img src={source} alt="" />
      <span>{number + 1}</span>
    </li>
  ));
  return (
    <figure class="patches">
      <figcaption>{block.title}</figcaption>
      <ol style={{ gridTemplateColumns: `repeat(${block.columns}, 40px)` }} aria-label="The patches in the image">
        {patches}
      </ol>
      <ol class="sequence" aria-label="The sequence that the model reads">
        <li>
          <b>[CLS]</b>
          <span>0</span>
        </li>
        {patches}
      </ol>
    </figure>
  );
}

/** The patches in the image, for SVG and PNG. */
function patchDrawing({ patches, columns }: PatchSequence): FigureDrawing {
  const [size, label] = [40, 14];
  const corner = (number: number) =>
    [(number % columns) * (size + 4), Math.floor(number / columns) * (size + label + 4)] as const;
  return {
    width: columns * (size + 4),
    height: Math.ceil(patches.length / columns) * (size + label + 4),
    tooltips: [],
    draw: (painter) =>
      patches.forEach((source, number) => {
        const [x, y] = corner(number);
        painter.image(source, x, y, size, size);
        painter.text(String(number + 1), x + size / 2, y + size + 8, {
          size: 10,
          align: "center",
          color: colors.get().muted,
        });
      }),
  };
}

function ShowTable({ table }: { table: StoryTable }) {
  const cells = (row: readonly string[]) =>
    row.map((content, column) => (table.text_columns.includes(column) ? { content, class: "text" } : content));
  return (
    <DataTable
      label={table.caption || table.headers.join(", ")}
      caption={table.caption}
      headers={cells(table.headers)}
      rows={table.rows.map(cells)}
    />
  );
}

function ShowFigure({ figure }: { figure: Figure }) {
  const drawing = useMemo(() => figureDrawing(figure), [figure]);
  const [tooltip, setTooltip] = useState("");
  const point = (event: MouseEvent) => {
    const { across, down } = pointerIn(event);
    const [x, y] = [across * drawing.width, down * drawing.height];
    setTooltip(
      drawing.tooltips.find((area) => x >= area.x && x < area.x + area.width && y >= area.y && y < area.y + area.height)
        ?.text ?? "",
    );
  };
  return (
    <figure>
      <figcaption>{figure.title}</figcaption>
      <ScrollRegion label={`${figure.title}, a drawing`}>
        <Canvas
          {...drawing}
          inputs={[drawing]}
          label={[figure.title, ...drawing.tooltips.map((area) => area.text)].join("; ")}
          canvas={{ onMouseMove: point, onMouseLeave: () => setTooltip("") }}
        />
      </ScrollRegion>
      <p class="muted tip">{tooltip}</p>
    </figure>
  );
}

const GAP = 34;

export const story: View<StoryPayload> = {
  name: "story",
  title: "A lesson",
  about: "",
  fields: [],
  Show,
  /** All figures below each other. */
  drawing(payload): Drawing {
    const figures = flatten(payload.blocks)
      .filter(
        (block) =>
          block.kind !== "text" && block.kind !== "table" && block.kind !== "section" && block.kind !== "figures",
      )
      .map((figure) => ({ title: figure.title, ...figureDrawing(figure) }));
    return {
      width: Math.max(200, ...figures.map((figure) => figure.width)),
      height: figures.reduce((sum, figure) => sum + figure.height + GAP, 0) || 1,
      draw(painter) {
        let y = 0;
        for (const figure of figures) {
          painter.text(figure.title, 0, y + 14, { bold: true });
          figure.draw(translated(painter, 0, y + GAP - 6));
          y += figure.height + GAP;
        }
      },
    };
  },
  /** All tables below each other; the first column is the caption of the table. */
  table(payload) {
    const tables = flatten(payload.blocks).filter((block) => block.kind === "table");
    const columns = Math.max(0, ...tables.map((table) => table.headers.length));
    const rows = tables.flatMap((table) =>
      [table.headers, ...table.rows].map((row) => [
        table.caption,
        ...row,
        ...Array<string>(columns - row.length).fill(""),
      ]),
    );
    return { headers: ["table", ...Array.from({ length: columns }, (_, number) => `column ${number + 1}`)], rows };
  },
};

export type Figure = HeatMap | LineChart | BarChart | NumberMatrix | Diagram | PatchSequence;

const FEW = 16; // columns; with more, cells are too small for numbers
const DARK = 0.655; // weights from here on get light numbers

export function figureDrawing(figure: Figure): FigureDrawing {
  switch (figure.kind) {
    case "map":
      return heatMapDrawing(figure);
    case "chart":
      return chartDrawing(figure);
    case "bars":
      return barDrawing(figure);
    case "numbers":
      return numbersDrawing(figure);
    case "diagram":
      return diagramDrawing(figure);
    case "patches":
      return patchDrawing(figure);
  }
}

function heatMapDrawing(map: HeatMap): FigureDrawing {
  const size = map.columns.length <= FEW ? 44 : 18;
  const labelWidth = longest(map.columns);
  const upright = labelWidth <= size - 4;
  const left = 20 + longest(map.rows) + 12;
  const top = 20 + (upright ? 20 : labelWidth + 8) + 6;
  const [width, height] = [size * map.columns.length, size * map.rows.length];
  const [across, down] = [
    Math.max(width, map.column_title.length * CHARACTER),
    Math.max(height, map.row_title.length * CHARACTER),
  ];
  const tooltips = map.weights.flatMap((row, i) =>
    row.map((weight, j) => ({
      x: left + size * j,
      y: top + size * i,
      width: size,
      height: size,
      text: `${map.row_title} ${map.rows[i]}, ${map.column_title} ${map.columns[j]}: ${(100 * weight).toFixed(1)}%`,
    })),
  );
  const draw = (painter: Painter) => {
    const { accent, ink, page, muted, rule } = colors.get();
    painter.text(map.column_title, left + across / 2, 10, { align: "center", color: muted });
    painter.text(map.row_title, 10, top + down / 2, { align: "center", color: muted, rotated: true });
    map.columns.forEach((name, j) => {
      const x = left + size * (j + 0.5);
      if (upright) painter.text(name, x, top - 12, { align: "center", mono: true });
      else painter.text(name, x, top - 6, { mono: true, rotated: true });
    });
    map.rows.forEach((name, i) => painter.text(name, left - 8, top + size * (i + 0.5), { align: "right", mono: true }));
    map.weights.flat().forEach((weight, i) => {
      const { x, y } = tooltips[i]!;
      painter.rect(x, y, size, size, accent, weight);
      if (size > 18)
        painter.text((100 * weight).toFixed(0), x + size / 2, y + size / 2, {
          align: "center",
          size: 12,
          color: weight >= DARK ? page : ink,
        });
    });
    outline(painter, left, top, width, height, rule);
    const y = top + height + 16;
    painter.text("0%", left, y + 6, { size: 12, color: muted });
    for (let step = 0; step <= 10; step++) painter.rect(left + 28 + 12 * step, y, 12, 12, accent, step / 10);
    outline(painter, left + 28, y, 132, 12, rule);
    painter.text("100%", left + 166, y + 6, { size: 12, color: muted });
  };
  return { width: left + Math.max(across, 205) + 2, height: top + Math.max(height + 36, down), tooltips, draw };
}

const CHART = { width: 420, height: 240, left: 58, top: 16, below: 52 };
const DASHES = [[], [12, 12], [5, 5], [20, 20]];

function chartDrawing(chart: LineChart): FigureDrawing {
  const { width, height, left, top, below } = CHART;
  const [low, high] = [Math.min(...chart.at), Math.max(...chart.at)];
  const x = (value: number) =>
    low === high ? left + width / 2 : left + 24 + ((width - 48) * (value - low)) / (high - low);
  const y = (percent: number) => top + height * (1 - percent / 100);
  const tooltips = chart.lines.flatMap((line) =>
    chart.at.map((value, i) => ({
      x: x(value) - 6,
      y: y(line.values[i]!) - 6,
      width: 12,
      height: 12,
      text: `${line.name}, ${chart.across} ${value}: ${line.values[i]!.toFixed(1)}%`,
    })),
  );
  const draw = (painter: Painter) => {
    const { accent, muted, rule } = colors.get();
    for (let percent = 0; percent <= 100; percent += 20) {
      painter.line(left, y(percent), left + width, y(percent), rule);
      painter.text(String(percent), left - 8, y(percent), { align: "right", size: 12, color: muted });
    }
    for (const value of chart.at)
      painter.text(String(value), x(value), top + height + 16, { align: "center", size: 12, color: muted });
    painter.text(chart.across, left + width / 2, top + height + 38, { align: "center", color: muted });
    painter.text(chart.up, 10, top + height / 2, { align: "center", color: muted, rotated: true });
    const order = chart.lines
      .map((line, number) => ({ line, number }))
      .sort((a, b) => b.line.values.at(-1)! - a.line.values.at(-1)!);
    let lowest = 0; // of the names so far, so that they do not overlap
    for (const { line, number } of order) {
      const points = chart.at.map((value, i) => [x(value), y(line.values[i]!)] as const);
      const ends = points.slice(1).flatMap((point, i) => [...points[i]!, ...point]);
      painter.lines(ends, accent, 1, false, 2.5, DASHES[number % DASHES.length]!);
      for (const [px, py] of points) painter.rect(px - 4, py - 4, 8, 8, accent);
      lowest = Math.max(points.at(-1)![1], lowest + 18);
      painter.text(line.name, left + width + 10, lowest, { color: muted });
    }
  };
  const names = longest(chart.lines.map((line) => line.name)) + 20;
  return { width: left + width + Math.max(120, names), height: top + height + below, tooltips, draw };
}
