// One drawing interface for a canvas and for SVG files; rasters in SVG are PNG files without compression.
import { colors } from "./theme";
import type { Drawing } from "./view";

export interface TextStyle {
  readonly size?: number;
  readonly align?: "left" | "right" | "center";
  readonly color?: string;
  readonly mono?: boolean;
  readonly bold?: boolean;
  readonly rotated?: boolean;
}

export interface Painter {
  line(x1: number, y1: number, x2: number, y2: number, color: string, opacity?: number, width?: number): void;
  /**
   * Lines of one style; each takes four numbers of `ends`: x and y of both ends. A curve leaves its ends sideways, or
   * downwards.
   */
  lines(
    ends: readonly number[],
    color: string,
    opacity: number,
    curved?: boolean | "down",
    width?: number,
    dash?: readonly number[],
  ): void;
  rect(x: number, y: number, width: number, height: number, color: string, opacity?: number): void;
  text(text: string, x: number, y: number, style?: TextStyle): void;
  /**
   * A raster of values from 0 to 1 in row-major order; the opacity of a cell is the square root of its value. The
   * values must not change later.
   */
  matrix(
    values: Float32Array,
    columns: number,
    x: number,
    y: number,
    width: number,
    height: number,
    color: string,
  ): void;
  /** An image from a data URI; on a canvas, only if `loadImage` has loaded it. */
  image(source: string, x: number, y: number, width: number, height: number): void;
}

export const MONO =
  'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", ' +
  '"Noto Sans Mono", "Courier New", monospace';
export const SANS =
  'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", "Liberation Sans", "Noto Sans", Arial, sans-serif';

/**
 * The opacities of a raster with one pixel per cell; if `limit` allows fewer pixels, a pixel shows its largest cell.
 */
function opacities(
  values: Float32Array,
  columns: number,
  limit: number,
): { wide: number; high: number; opacity: Uint8ClampedArray } {
  const rows = values.length / columns;
  const wide = Math.max(1, Math.min(columns, Math.floor(limit)));
  const high = Math.max(1, Math.min(rows, Math.floor(limit)));
  let largest = values;
  if (wide < columns || high < rows) {
    largest = new Float32Array(wide * high);
    const across = Uint32Array.from({ length: columns }, (_, column) => Math.floor((column * wide) / columns));
    for (let row = 0, cell = 0; row < rows; row++) {
      const base = Math.floor((row * high) / rows) * wide;
      for (let column = 0; column < columns; column++, cell++) {
        const pixel = base + across[column]!;
        const value = values[cell]!;
        if (value > largest[pixel]!) largest[pixel] = value;
      }
    }
  }
  const opacity = new Uint8ClampedArray(largest.length); // of a negative value, whose root is NaN: 0
  // the root keeps small values visible
  for (let pixel = 0; pixel < opacity.length; pixel++) opacity[pixel] = 255 * Math.sqrt(largest[pixel]!);
  return { wide, high, opacity };
}

/** A raster as a small image. */
export function raster(values: Float32Array, columns: number, color: string, limit = Infinity): HTMLCanvasElement {
  const { wide, high, opacity } = opacities(values, columns, limit);
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  const context = canvas.getContext("2d");
  if (!context) return canvas;
  const image = context.createImageData(wide, high);
  const [red, green, blue] = channels(color);
  const pixels = new DataView(image.data.buffer);
  const base = ((red << 24) | (green << 16) | (blue << 8)) >>> 0;
  for (let pixel = 0; pixel < opacity.length; pixel++) pixels.setUint32(4 * pixel, base + opacity[pixel]!);
  context.putImageData(image, 0, 0);
  return canvas;
}

const rasters = new WeakMap<Float32Array, { readonly name: string; readonly canvas: HTMLCanvasElement }>();

/** The last raster of these values, which must not change, or a new one. */
function cachedRaster(values: Float32Array, columns: number, color: string, limit: number): HTMLCanvasElement {
  const name = `${columns} ${color} ${limit}`;
  const known = rasters.get(values);
  if (known?.name === name) return known.canvas;
  const canvas = raster(values, columns, color, limit);
  rasters.set(values, { name, canvas });
  return canvas;
}

const images = new Map<string, HTMLImageElement>();

/** Loads an image, so that it can be drawn on a canvas. */
export function loadImage(source: string): Promise<void> {
  const image = new Image();
  image.src = source;
  return image.decode().then(() => void images.set(source, image));
}

function channels(color: string): [number, number, number] {
  const number = Number.parseInt(color.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

export function canvasPainter(context: CanvasRenderingContext2D, ink: string): Painter {
  const painter: Painter = {
    line: (x1, y1, x2, y2, color, opacity = 1, width = 1) =>
      painter.lines([x1, y1, x2, y2], color, opacity, false, width),
    lines(ends, color, opacity, curved = false, width = 1.5, dash = []) {
      context.globalAlpha = opacity;
      context.setLineDash([...dash]);
      context.strokeStyle = color;
      context.lineWidth = width;
      for (let i = 0; i < ends.length; i += 4) {
        // One path per line: crossing lines of one path would not darken each other.
        const [x1, y1, x2, y2] = [ends[i]!, ends[i + 1]!, ends[i + 2]!, ends[i + 3]!] as const;
        context.beginPath();
        context.moveTo(x1, y1);
        if (curved === "down") context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
        else if (curved) context.bezierCurveTo((x1 + x2) / 2, y1, (x1 + x2) / 2, y2, x2, y2);
        else context.lineTo(x2, y2);
        context.stroke();
      }
      context.setLineDash([]);
      context.globalAlpha = 1;
    },
    rect(x, y, width, height, color, opacity = 1) {
      context.globalAlpha = opacity;
      context.fillStyle = color;
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
    },
    text(text, x, y, style = {}) {
      context.save();
      context.font = `${style.bold ? "600 " : ""}${style.size ?? 13}px ${style.mono ? MONO : SANS}`;
      context.fillStyle = style.color ?? ink;
      context.textAlign = style.align ?? "left";
      context.textBaseline = "middle";
      context.translate(x, y);
      if (style.rotated) context.rotate(-Math.PI / 2);
      context.fillText(text, 0, 0);
      context.restore();
    },
    matrix(values, columns, x, y, width, height, color) {
      context.imageSmoothingEnabled = false;
      const pixels = Math.ceil(context.getTransform().a * Math.max(width, height));
      context.drawImage(cachedRaster(values, columns, color, pixels), x, y, width, height);
    },
    image(source, x, y, width, height) {
      const image = images.get(source);
      if (image) context.drawImage(image, x, y, width, height);
    },
  };
  return painter;
}

/** What stands below a picture: the text in quotation marks, then the model and where the picture was made. */
export interface Caption {
  readonly text: string;
  readonly credit: string;
}

const PADDING = 12; // around a picture that is cut
const [CAPTION_SIZE, CAPTION_LINE, MAX_CAPTION_LINES, MIN_CAPTION_WIDTH] = [11, 16, 3, 300];

/** A complete SVG document that refers to nothing outside itself: cut to what is drawn, with the caption below it. */
export function svgDocument(drawing: Drawing, title: string, caption: Caption): string {
  const [left, top, right, bottom] = boundingBox(drawing);
  const width = Math.max(MIN_CAPTION_WIDTH, Math.ceil(right - left));
  const lines = caption.text
    ? wrap(caption.text.replace(/\s+/g, " "), Math.floor(width / (CAPTION_SIZE * CHARACTER_WIDTH)))
    : [];
  const shown =
    lines.length > MAX_CAPTION_LINES
      ? [...lines.slice(0, MAX_CAPTION_LINES - 1), `${lines[MAX_CAPTION_LINES - 1]!.slice(0, -1)}…`]
      : lines;
  const box = [
    left - PADDING,
    top - PADDING,
    width + 2 * PADDING,
    Math.ceil(bottom - top) + CAPTION_LINE * (shown.length + 1) + 2.5 * PADDING,
  ].map(Math.round) as [number, number, number, number];
  const parts: string[] = [];
  const painter = svgPainter(parts);
  const { page, muted, ink } = colors.get();
  painter.rect(...box, page);
  drawing.draw(painter);
  parts.push('<g class="caption">');
  shown.forEach((line, number) =>
    painter.text(line, left, bottom + PADDING + CAPTION_LINE * (number + 0.5), { size: CAPTION_SIZE, color: ink }),
  );
  painter.text(caption.credit, left, bottom + PADDING + CAPTION_LINE * (shown.length + 0.5), {
    size: CAPTION_SIZE,
    color: muted,
  });
  parts.push("</g>");
  const name = escaped(title);
  const size = `width="${box[2]}" height="${box[3]}" viewBox="${box.join(" ")}"`;
  // Joined, not concatenated: the library's JavaScript engine cannot return a string that has not been copied together.
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="${name}" ${size}>`,
    `<title>${name}</title>`,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

// of the font size, as in DejaVu Sans, the widest of the fonts; in the monospaced one all are as wide
const CHARACTER_WIDTH = 0.62;
const NARROW = /[ijl.,:;'|! ftrI()[\]-]/;
const WIDE = /[mwMW%→]/;
const FULL_WIDTH = /[\u1100-\u115f\u2e80-\uffef]|\p{Extended_Pictographic}/u;

/** About how wide a text is: there is no font to measure where the library draws. */
function textWidth(text: string, { size = 13, bold = false, mono = false }: TextStyle): number {
  let width = 0;
  for (const character of text) {
    if (FULL_WIDTH.test(character)) width += 1;
    else if (mono) width += CHARACTER_WIDTH;
    else width += (NARROW.test(character) ? 0.38 : WIDE.test(character) ? 0.9 : CHARACTER_WIDTH) * (bold ? 1.1 : 1);
  }
  return width * size;
}

/** Left, top, right and bottom of everything that is drawn. */
export function boundingBox(drawing: Drawing): readonly [number, number, number, number] {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const include = (x1: number, y1: number, x2: number, y2: number) => {
    [left, top, right, bottom] = [
      Math.min(left, x1, x2),
      Math.min(top, y1, y2),
      Math.max(right, x1, x2),
      Math.max(bottom, y1, y2),
    ];
  };
  drawing.draw({
    line: (x1, y1, x2, y2) => include(x1, y1, x2, y2),
    lines(ends) {
      for (let i = 0; i < ends.length; i += 4) include(ends[i]!, ends[i + 1]!, ends[i + 2]!, ends[i + 3]!);
    },
    rect: (x, y, width, height) => include(x, y, x + width, y + height),
    text(text, x, y, style = {}) {
      if (!text) return;
      const [length, half] = [textWidth(text, style), (style.size ?? 13) * 0.6];
      const [before, after] = { left: [0, length], right: [length, 0], center: [length / 2, length / 2] }[
        style.align ?? "left"
      ] as [number, number];
      // A rotated text reads upwards.
      if (style.rotated) include(x - half, y - after, x + half, y + before);
      else include(x - before, y - half, x + after, y + half);
    },
    matrix: (_values, _columns, x, y, width, height) => include(x, y, x + width, y + height),
    image: (_source, x, y, width, height) => include(x, y, x + width, y + height),
  });
  return left < Infinity ? [left, top, right, bottom] : [0, 0, drawing.width, drawing.height];
}

/** A painter that adds SVG markup to a list. Text is escaped. */
function svgPainter(parts: string[]): Painter {
  const sources: string[] = []; // of images, which are written once
  const n = (value: number) => String(Math.round(value * 100) / 100);
  const painter: Painter = {
    line: (x1, y1, x2, y2, color, opacity = 1, width = 1) =>
      painter.lines([x1, y1, x2, y2], color, opacity, false, width),
    lines(ends, color, opacity, curved = false, width = 1.5, dash = []) {
      const dashed = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
      parts.push(
        `<g fill="none" stroke="${color}" stroke-opacity="${n(opacity)}" stroke-width="${n(width)}"${dashed}>`,
      );
      for (let i = 0; i < ends.length; i += 4) {
        const [x1, y1, x2, y2] = [n(ends[i]!), n(ends[i + 1]!), n(ends[i + 2]!), n(ends[i + 3]!)];
        const middle = n(curved === "down" ? (ends[i + 1]! + ends[i + 3]!) / 2 : (ends[i]! + ends[i + 2]!) / 2);
        const bend =
          curved === "down" ? `C${x1} ${middle} ${x2} ${middle} ` : curved ? `C${middle} ${y1} ${middle} ${y2} ` : "L";
        parts.push(`<path d="M${x1} ${y1}${bend}${x2} ${y2}"/>`);
      }
      parts.push("</g>");
    },
    rect(x, y, width, height, color, opacity = 1) {
      parts.push(
        `<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" fill="${color}" ` +
          `fill-opacity="${n(opacity)}"/>`,
      );
    },
    text(text, x, y, style = {}) {
      const anchor = { left: "start", right: "end", center: "middle" }[style.align ?? "left"];
      const rotated = style.rotated ? ` transform="rotate(-90 ${n(x)} ${n(y)})"` : "";
      const family = (style.mono ? MONO : SANS).replaceAll('"', "'");
      parts.push(
        `<text x="${n(x)}" y="${n(y)}" text-anchor="${anchor}" dominant-baseline="central" xml:space="preserve" ` +
          `fill="${style.color ?? colors.get().ink}"` +
          ` font-family="${family}" ` +
          `font-size="${style.size ?? 13}"${style.bold ? ' font-weight="600"' : ""}${rotated}>${escaped(text)}</text>`,
      );
    },
    matrix(values, columns, x, y, width, height, color) {
      const { wide, high, opacity } = opacities(values, columns, 2 * Math.max(width, height));
      parts.push(
        `<image x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" preserveAspectRatio="none" ` +
          `style="image-rendering:pixelated" href="${pngUri(opacity, wide, high, channels(color))}"/>`,
      );
    },
    image(source, x, y, width, height) {
      if (!sources.includes(source)) {
        parts.push(
          `<defs><image id="image-${sources.length}" width="1" height="1" preserveAspectRatio="none" ` +
            `href="${escaped(source)}"/></defs>`,
        );
        sources.push(source);
      }
      parts.push(
        `<use href="#image-${sources.indexOf(source)}" transform="translate(${n(x)} ${n(y)}) scale(${width} ` +
          `${height})"/>`,
      );
    },
  };
  return painter;
}

function escaped(text: string): string {
  const named: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // XML allows neither control characters nor lone surrogates.
  return (
    text
      .replace(/[&<>"]/g, (letter) => named[letter]!)
      // biome-ignore lint/suspicious/noControlCharactersInRegex: XML cannot contain them
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu, "\ufffd")
  );
}

/** The same painter with its origin moved. */
export function translated(painter: Painter, dx: number, dy: number): Painter {
  return {
    line: (x1, y1, x2, y2, ...style) => painter.line(x1 + dx, y1 + dy, x2 + dx, y2 + dy, ...style),
    lines: (ends, ...style) =>
      painter.lines(
        ends.map((end, i) => end + (i % 2 ? dy : dx)),
        ...style,
      ),
    rect: (x, y, ...style) => painter.rect(x + dx, y + dy, ...style),
    text: (text, x, y, style) => painter.text(text, x + dx, y + dy, style),
    matrix: (values, columns, x, y, ...style) => painter.matrix(values, columns, x + dx, y + dy, ...style),
    image: (source, x, y, ...size) => painter.image(source, x + dx, y + dy, ...size),
  };
}

/**
 * A raster of signed numbers: one color for positive and another for negative ones, full at `largest`; infinite ones
 * stay empty.
 */
export function signedMatrix(
  painter: Painter,
  numbers: Float32Array,
  largest: number,
  columns: number,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  const { accent, other } = colors.get();
  for (const [color, sign] of [
    [accent, 1],
    [other, -1],
  ] as const) {
    // The opacity of a cell is the square root of its value; squaring cancels that.
    const values = numbers.map((value) =>
      Number.isFinite(value) ? Math.min(1, Math.max(0, (sign * value) / largest)) ** 2 : 0,
    );
    painter.matrix(values, columns, x, y, width, height, color);
  }
}

/** The outline of a rectangle. */
export function outline(
  painter: Painter,
  x: number,
  y: number,
  width: number,
  height: number,
  color: string,
  opacity = 1,
  lineWidth = 1,
): void {
  const [right, bottom] = [x + width, y + height];
  painter.lines(
    [x, y, right, y, right, y, right, bottom, right, bottom, x, bottom, x, bottom, x, y],
    color,
    opacity,
    false,
    lineWidth,
  );
}

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

/**
 * A data URI of an image whose pixels have one color and these opacities: a palette of 256 opacities, a byte per pixel.
 */
export function pngUri(opacity: Uint8ClampedArray, width: number, height: number, color: readonly number[]): string {
  const rows = new Uint8Array(height * (width + 1)); // each row starts with its filter, 0 for none
  for (let row = 0; row < height; row++)
    rows.set(opacity.subarray(row * width, (row + 1) * width), row * (width + 1) + 1);
  const palette = Array.from({ length: 256 }, () => color).flat();
  const levels = Array.from({ length: 256 }, (_, level) => level);
  const content = [
    ...[137, 80, 78, 71, 13, 10, 26, 10],
    ...chunk("IHDR", [...bigEndian(width), ...bigEndian(height), 8, 3, 0, 0, 0]),
    ...chunk("PLTE", palette),
    ...chunk("tRNS", levels),
    ...chunk("IDAT", stored(rows)),
    ...chunk("IEND", []),
  ];
  return `data:image/png;base64,${btoa(content.map((byte) => String.fromCharCode(byte)).join(""))}`;
}

const bigEndian = (value: number) => [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];

function chunk(name: string, data: readonly number[]): number[] {
  const body = [...Array.from(name, (letter) => letter.charCodeAt(0)), ...data];
  return [...bigEndian(data.length), ...body, ...bigEndian(crc32(body))];
}

/** The zlib format with blocks that are not compressed. */
function stored(data: Uint8Array): number[] {
  const result = [0x78, 0x01];
  const MOST = 65535; // bytes of a block
  for (let start = 0; start < data.length; start += MOST) {
    const block = data.subarray(start, start + MOST);
    const [low, high] = [block.length & 255, block.length >>> 8];
    result.push(start + MOST >= data.length ? 1 : 0, low, high, low ^ 255, high ^ 255);
    for (const byte of block) result.push(byte);
  }
  return [...result, ...bigEndian(adler32(data))];
}

function adler32(data: Uint8Array): number {
  let [low, high] = [1, 0];
  for (const byte of data) {
    low = (low + byte) % 65521;
    high = (high + low) % 65521;
  }
  return ((high << 16) | low) >>> 0;
}

const CRC = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

function crc32(data: readonly number[]): number {
  let crc = 0xffffffff;
  for (const byte of data) crc = CRC[(crc ^ byte) & 255]! ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
