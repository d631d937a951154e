// Arrays that the library sends as base64.

type Decoder = { fromBase64?(text: string): Uint8Array<ArrayBuffer> };

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as Decoder).fromBase64?.(text); // not in every browser
  if (native) return native;
  const characters = atob(text);
  const result = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) result[i] = characters.charCodeAt(i);
  return result;
}

const decoded = new Map<string, Float32Array>();

/** float32 values from base64; the last arrays are cached. */
export function floats(text: string): Float32Array {
  const known = decoded.get(text);
  if (known) return known;
  if (decoded.size > 200) decoded.clear();
  const values = new Float32Array(bytes(text).buffer);
  decoded.set(text, values);
  return values;
}

/** Little-endian float16 values as float32. */
export function halves(raw: Uint8Array): Float32Array {
  table ??= Float32Array.from({ length: 65536 }, (_, bits) => half(bits));
  const result = new Float32Array(raw.length >> 1);
  for (let i = 0; i < result.length; i++) result[i] = table[raw[2 * i]! | (raw[2 * i + 1]! << 8)]!;
  return result;
}

let table: Float32Array | undefined;

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * 2 ** -24 * fraction;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 25) * (1024 + fraction);
}
