// Small pictures of the views, for the home page: the content of an SVG element of 96 x 60, in the colors of the page.
import type { ComponentChildren } from "preact";

type Picture = () => ComponentChildren;

const OTHER = "var(--other)";
const range = (length: number) => Array.from({ length }, (_, index) => index);

/** Horizontal bars: each has its length and may have another color. */
const bars = (lengths: readonly number[], other = -1, left = 10) =>
  lengths.map((length, row) => (
    <rect
      key={row}
      x={left}
      y={8 + row * (46 / lengths.length)}
      width={length}
      height={34 / lengths.length}
      rx="2"
      fill={row === other ? OTHER : "currentColor"}
      opacity={row === other ? 1 : 0.75}
    />
  ));

/** Lines of text. */
const text = (x: number, y: number, widths: readonly number[], opacity = 0.35) =>
  widths.map((width, row) => (
    <rect
      key={`${x}.${y}.${row}`}
      x={x}
      y={y + row * 9}
      width={width}
      height="4"
      rx="2"
      fill="currentColor"
      opacity={opacity}
    />
  ));

/** A grid of squares; `strength` is the opacity of each. */
const cells = (
  rows: number,
  columns: number,
  strength: (row: number, column: number) => number,
  other: (row: number, column: number) => boolean = () => false,
) => {
  const size = Math.min(48 / rows, 84 / columns);
  const [left, top] = [48 - (columns * size) / 2, 30 - (rows * size) / 2];
  return range(rows * columns).map((at) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    return (
      <rect
        key={at}
        x={left + column * size}
        y={top + row * size}
        width={size - 1.5}
        height={size - 1.5}
        rx="1.5"
        fill={other(row, column) ? OTHER : "currentColor"}
        opacity={strength(row, column)}
      />
    );
  });
};

const dots = (points: readonly (readonly [number, number])[], fill = "currentColor") =>
  points.map(([x, y]) => <circle key={`${x}.${y}`} cx={x} cy={y} r="3" fill={fill} opacity=".8" />);

const curve = (from: number, to: number, width: number, opacity = 1) => (
  <path
    key={`${from}.${to}`}
    d={`M26 ${from}C48 ${from} 48 ${to} 70 ${to}`}
    fill="none"
    stroke="currentColor"
    stroke-width={width}
    opacity={opacity}
  />
);

/** A deterministic number from 0 to 1 for a cell. */
const mixed = (row: number, column: number) => ((row * 7 + column * 11 + row * column * 5) % 13) / 13;

export const thumbnails = {
  attention: () => [
    text(8, 6, [14, 14, 14, 14, 14, 14]),
    text(74, 6, [14, 14, 14, 14, 14, 14]),
    curve(8, 17, 1, 0.4),
    curve(17, 8, 1, 0.4),
    curve(26, 44, 1, 0.3),
    curve(44, 17, 3),
    curve(53, 53, 1, 0.4),
  ],
  heads: () =>
    cells(
      5,
      8,
      (row, column) => 0.15 + 0.75 * mixed(row, column),
      (row, column) => (row * 3 + column) % 9 === 4,
    ),
  lens: () =>
    cells(
      6,
      8,
      (row, column) => 0.12 + 0.8 * Math.max(0, (row - (column % 4)) / 6),
      (row, column) => row === 5 && column === 5,
    ),
  longAttention: () =>
    cells(
      10,
      10,
      (row, column) => (column > row ? 0.06 : column === 0 || row - column < 2 ? 0.85 : 0.25),
      (row, column) => row > 5 && row < 8 && column > 2 && column < 5,
    ),
  logitAttribution: () => bars([20, 44, 12, 62, 30], 2),
  patch: () =>
    cells(
      5,
      8,
      (row, column) => (column === 2 && row < 3 ? 0.9 : column === 7 && row > 2 ? 0.9 : 0.15),
      (row, column) => row === 2 && column === 5,
    ),
  activations: () => [
    text(8, 6, [70, 58, 64, 40, 52]),
    ...[
      [22, 6],
      [40, 15],
      [14, 24],
    ].map(([x, y]) => <rect key={`hit${y}`} x={x} y={y} width="14" height="4" rx="2" fill={OTHER} />),
  ],
  figure: () => [
    ...[8, 26, 44].map((y) => (
      <rect key={`l${y}`} x="20" y={y} width="24" height="11" rx="3" fill="currentColor" opacity=".6" />
    )),
    ...[2, 16, 30, 44].map((y) => (
      <rect
        key={`r${y}`}
        x="54"
        y={y}
        width="24"
        height="11"
        rx="3"
        fill={y === 16 ? OTHER : "currentColor"}
        opacity=".7"
      />
    )),
    <path key="arrow" d="M44 14H50V21H54" fill="none" stroke="currentColor" stroke-width="1.5" />,
  ],
  ablation: () =>
    cells(
      4,
      7,
      (row, column) => 0.2 + 0.5 * mixed(row, column),
      (row, column) => row === 1 && column === 3,
    ),
  faithfulness: () => [
    bars([60, 34, 70, 22], 3),
    <path key="tick" d="M74 42L80 48L90 34" fill="none" stroke="currentColor" stroke-width="3" />,
  ],
  tokenize: () =>
    [
      [8, 24],
      [34, 14],
      [50, 20],
      [72, 16],
    ].map(([x, width]) => (
      <rect
        key={x}
        x={x}
        y="20"
        width={width}
        height="18"
        rx="4"
        fill={x === 34 ? OTHER : "currentColor"}
        opacity=".75"
      />
    )),
  compare: () => [
    dots([
      [20, 48],
      [30, 40],
      [42, 32],
      [54, 27],
      [66, 16],
      [76, 11],
    ]),
    dots(
      [
        [38, 14],
        [48, 20],
      ],
      OTHER,
    ),
    <path key="line" d="M10 56L90 4" stroke="currentColor" opacity=".35" />,
  ],
  generation: () => [
    text(8, 8, [46, 38]),
    bars([44, 24, 16, 8], 0, 40).map((bar) => (
      <g key={bar.key} transform="translate(0 18) scale(1 .7)">
        {bar}
      </g>
    )),
    <rect key="caret" x="8" y="28" width="20" height="5" rx="2" fill={OTHER} />,
  ],
  decoding: () => [
    <path key="kept" d="M10 30H34M42 30L58 18M66 18H84" fill="none" stroke="currentColor" stroke-width="2.5" />,
    <path key="cut" d="M42 30L58 42M66 18L84 30" fill="none" stroke="currentColor" opacity=".35" />,
    dots([
      [38, 30],
      [62, 18],
    ]),
    dots([[88, 18]], OTHER),
    dots(
      [
        [62, 42],
        [88, 32],
      ],
      "var(--muted)",
    ),
  ],
  translation: () => cells(5, 7, (row, column) => (Math.abs(column - row - (row > 2 ? 1 : 0)) < 1 ? 0.95 : 0.12)),
  senses: () => [
    dots([
      [18, 18],
      [26, 24],
      [20, 30],
      [30, 16],
    ]),
    dots(
      [
        [66, 40],
        [74, 34],
        [72, 46],
        [62, 48],
      ],
      OTHER,
    ),
  ],
  map: () => [
    dots([
      [14, 14],
      [24, 20],
      [18, 26],
    ]),
    dots(
      [
        [70, 12],
        [80, 18],
        [74, 24],
      ],
      OTHER,
    ),
    dots(
      [
        [42, 44],
        [52, 48],
        [48, 38],
      ],
      "var(--muted)",
    ),
  ],
  search: () => [
    <circle key="glass" cx="20" cy="22" r="9" fill="none" stroke="currentColor" stroke-width="3" />,
    <path key="handle" d="M27 29L35 38" stroke="currentColor" stroke-width="3" />,
    text(44, 10, [42, 34, 38, 26]),
    <rect key="hit" x="44" y="10" width="42" height="4" rx="2" fill={OTHER} />,
  ],
  clusters: () => [
    <circle key="a" cx="26" cy="24" r="16" fill="currentColor" opacity=".18" />,
    <circle key="b" cx="70" cy="34" r="20" fill={OTHER} opacity=".18" />,
    dots([
      [20, 20],
      [30, 22],
      [24, 32],
    ]),
    dots(
      [
        [62, 28],
        [76, 30],
        [70, 42],
        [64, 44],
      ],
      OTHER,
    ),
  ],
  features: () => [
    text(6, 14, [18, 18, 18, 18]),
    <path key="a" d="M28 30H34M62 30H68" stroke="currentColor" stroke-width="2" />,
    cells(6, 4, (row, column) => 0.2 + 0.7 * mixed(row, column)),
    <rect key="good" x="72" y="18" width="18" height="10" rx="3" fill="currentColor" />,
    <rect key="bad" x="72" y="33" width="18" height="10" rx="3" fill={OTHER} />,
  ],
  tasks: () => [
    text(10, 8, [70, 54]),
    <rect key="label" x="10" y="30" width="34" height="16" rx="8" fill={OTHER} opacity=".9" />,
    <rect key="bar" x="50" y="35" width="36" height="6" rx="3" fill="currentColor" opacity=".7" />,
  ],
  evaluation: () =>
    cells(
      3,
      3,
      (row, column) => (row === column ? 0.9 : 0.2),
      (row, column) => row === 0 && column === 1,
    ),
  fill: () => [
    text(8, 10, [26]),
    text(66, 10, [22]),
    <rect key="blank" x="38" y="16" width="24" height="3" fill={OTHER} />,
    bars([60, 34, 20], 0).map((bar) => (
      <g key={bar.key} transform="translate(0 22) scale(1 .62)">
        {bar}
      </g>
    )),
  ],
  similarity: () => [
    <rect key="image" x="8" y="12" width="34" height="36" rx="3" fill="currentColor" opacity=".25" />,
    <circle key="sun" cx="33" cy="21" r="4" fill={OTHER} />,
    <path key="hill" d="M8 46L20 28L30 40L35 35L42 44V48H8Z" fill="currentColor" opacity=".7" />,
    bars([36, 14, 22], 0, 52),
  ],
  layers: () => bars([30, 44, 56, 66, 60, 52], 3),
} satisfies Readonly<Record<string, Picture>>;
