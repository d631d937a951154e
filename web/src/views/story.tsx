// A story: texts, tables, heat maps and charts below each other, as lessons write them (src/regard/render/story.py).
import { useMemo, useState } from "preact/hooks";
import { Canvas } from "../canvas";
import { DataTable, ScrollRegion } from "../components";
import { translated } from "../painter";
import type { Story, StoryTable } from "../types";
import type { Drawing, Payload, View } from "../view";
import { type Figure, figureDrawing } from "./story/draw_figure";
import "./story/story.css";

type Block = Story["blocks"][number];
type StoryPayload = Story & Payload;

/** The blocks and those inside them in reading order. */
function flatten(blocks: readonly Block[]): Block[] {
  return blocks.flatMap((block) => ("blocks" in block ? [block, ...flatten(block.blocks)] : [block]));
}

const isFigure = (block: Block): block is Figure => block.kind === "map" || block.kind === "chart";
const isTable = (block: Block): block is StoryTable => block.kind === "table";

function Show({ payload }: { payload: StoryPayload }) {
  return (
    <div class="story">
      <Blocks blocks={payload.blocks} />
    </div>
  );
}

function Blocks({ blocks }: { blocks: readonly Block[] }) {
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
    case "table":
      return <DataTable label={block.caption || block.headers.join(", ")} caption={block.caption} headers={block.headers} rows={block.rows} />;
    default:
      return <ShowFigure figure={block} />;
  }
}

function ShowFigure({ figure }: { figure: Figure }) {
  const drawing = useMemo(() => figureDrawing(figure), [figure]);
  const [tooltip, setTooltip] = useState("");
  const point = (event: MouseEvent) => {
    const { left, top } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    setTooltip(drawing.tooltips.find((area) => x >= area.x && x < area.x + area.size && y >= area.y && y < area.y + area.size)?.text ?? "");
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
    const figures = flatten(payload.blocks).filter(isFigure).map((figure) => ({ title: figure.title, ...figureDrawing(figure) }));
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
    const tables = flatten(payload.blocks).filter(isTable);
    const columns = Math.max(0, ...tables.map((table) => table.headers.length));
    const rows = tables.flatMap((table) => [table.headers, ...table.rows].map((row) => [table.caption, ...row, ...Array<string>(columns - row.length).fill("")]));
    return { headers: ["table", ...Array.from({ length: columns }, (_, number) => `column ${number + 1}`)], rows };
  },
};
