// A story: texts, tables, maps and charts one below the other, as the lessons tell them.
import { useMemo, useState } from "preact/hooks";
import { Canvas } from "../canvas";
import { canvasPainter, type Painter } from "../painter";
import { colors } from "../theme";
import type { Drawing, Payload, View } from "../view";
import { every, isFigure, type Block, type Figure, type Tabled } from "./story/blocks";
import { drawn } from "./story/figures";
import "./story/story.css";

interface StoryPayload extends Payload {
  readonly title: string;
  readonly blocks: readonly Block[];
}

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
        <One key={number} block={block} />
      ))}
    </>
  );
}

function One({ block }: { block: Block }) {
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
      return <Rows table={block} />;
    default:
      return <Picture figure={block} />;
  }
}

function Rows({ table }: { table: Tabled }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={table.caption || table.headers.join(", ")}>
      <table>
        {table.caption && <caption>{table.caption}</caption>}
        <thead>
          <tr>
            {table.headers.map((header, number) => (
              <th key={number} scope="col">
                {header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, number) => (
            <tr key={number}>
              {row.map((cell, column) => (column ? <td key={column}>{cell}</td> : <th key={column} scope="row">{cell}</th>))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Picture({ figure }: { figure: Figure }) {
  const picture = useMemo(() => drawn(figure), [figure]);
  const [tip, tell] = useState("");
  const point = (event: MouseEvent) => {
    const { left, top } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    tell(picture.cells.find((cell) => x >= cell.x && x < cell.x + cell.size && y >= cell.y && y < cell.y + cell.size)?.tip ?? "");
  };
  return (
    <figure>
      <figcaption>{figure.title}</figcaption>
      <div class="wide" tabIndex={0} role="region" aria-label={`${figure.title}, a drawing`}>
        <Canvas
          width={picture.width}
          height={picture.height}
          draw={(context) => picture.draw(canvasPainter(context, colors.get().ink))}
          inputs={[picture]}
          label={[figure.title, ...picture.cells.map((cell) => cell.tip)].join("; ")}
          canvas={{ onMouseMove: point, onMouseLeave: () => tell("") }}
        />
      </div>
      <p class="muted tip">{tip}</p>
    </figure>
  );
}

const GAP = 34;

export const story: View<StoryPayload> = {
  name: "story",
  title: "A lesson",
  about: "",
  fields: [],
  model: false,
  Show,
  /** All drawings, one below the other. */
  drawing(payload): Drawing {
    const figures = every(payload.blocks).filter(isFigure);
    const pictures = figures.map((figure) => ({ figure, ...drawn(figure) }));
    return {
      width: Math.max(200, ...pictures.map((picture) => picture.width)),
      height: pictures.reduce((sum, picture) => sum + picture.height + GAP, 0) || 1,
      draw(painter) {
        let below = 0;
        for (const picture of pictures) {
          painter.text(picture.figure.title, 0, below + 14, { bold: true });
          picture.draw(moved(painter, below + GAP - 6));
          below += picture.height + GAP;
        }
      },
    };
  },
  /** All tables, one below the other, each row behind the caption or the headers of its table. */
  table(payload) {
    const tables = every(payload.blocks).filter((block) => block.kind === "table") as Tabled[];
    const wide = Math.max(0, ...tables.map((table) => table.headers.length));
    const rows = tables.flatMap((table) =>
      [table.headers, ...table.rows].map((row) => [table.caption, ...row, ...Array<string>(wide - row.length).fill("")]),
    );
    return { headers: ["table", ...Array.from({ length: wide }, (_, number) => `column ${number + 1}`)], rows };
  },
};

/** The same painter, further down. */
function moved(painter: Painter, by: number): Painter {
  return {
    line: (x1, y1, x2, y2, ...rest) => painter.line(x1, y1 + by, x2, y2 + by, ...rest),
    lines: (ends, ...rest) => painter.lines(ends.map((value, number) => (number % 2 ? value + by : value)), ...rest),
    rect: (x, y, ...rest) => painter.rect(x, y + by, ...rest),
    text: (text, x, y, style) => painter.text(text, x, y + by, style),
    matrix: (values, columns, x, y, ...rest) => painter.matrix(values, columns, x, y + by, ...rest),
  };
}
