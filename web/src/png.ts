// Rasters of one color as PNG files, without compression.

/** A data URI of an image whose pixels have one color and these opacities: a palette of 256 opacities, a byte per pixel. */
export function pngUri(opacity: Uint8ClampedArray, width: number, height: number, color: readonly number[]): string {
  const rows = new Uint8Array(height * (width + 1)); // each row starts with its filter, 0 for none
  for (let row = 0; row < height; row++) rows.set(opacity.subarray(row * width, (row + 1) * width), row * (width + 1) + 1);
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
