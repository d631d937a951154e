// Numbers and tokens as text, and arrays from base64.
import { expect, test } from "vitest";
import { bytes, floats, halves } from "../src/binary";
import { count, decimal, largestMagnitude, percent, plural, quoted, slice, truncate, visible } from "../src/format";

const encoded = (values: Uint8Array | Float32Array) =>
  btoa(String.fromCharCode(...new Uint8Array(values.buffer, values.byteOffset, values.byteLength)));

test("integers have commas between thousands", () => {
  expect([0, 999, 1000, 1234567].map(count)).toEqual(["0", "999", "1,000", "1,234,567"]);
  expect([plural(1, "text"), plural(2000, "text")]).toEqual(["1 text", "2,000 texts"]);
});

test("a probability is never rounded to 0% or 100%", () => {
  expect([0, 0.0001, 0.0005, 0.5, 0.9994, 0.9996, 1].map(percent)).toEqual([
    "0.0%",
    "<0.1%",
    "0.1%",
    "50.0%",
    "99.9%",
    ">99.9%",
    "100.0%",
  ]);
});

test("decimals have a true minus sign, and there is no negative zero", () => {
  expect([decimal(-1.5, 1), decimal(-0.0001), decimal(0.25, 2, true), decimal(0, 1, true)]).toEqual([
    "−1.5",
    "0.000",
    "+0.25",
    "0.0",
  ]);
});

test("texts are cut by characters as Python counts them", () => {
  expect(truncate("🐈🐈🐈", 3)).toBe("🐈🐈🐈");
  expect(truncate("🐈🐈🐈🐈", 3)).toBe("🐈🐈…");
  expect(slice("a🐈b", 1, 2)).toBe("🐈");
});

test("whitespace and byte escapes of tokens are visible", () => {
  expect(visible(" a\n")).toBe("␣a⏎");
  expect(quoted("\\xe2")).toBe('"\\xe2"');
});

test("the largest magnitude ignores infinities and can be divided by", () => {
  expect(largestMagnitude([1, -3], [-Infinity, Number.NaN])).toBe(3);
  expect(largestMagnitude([])).toBeGreaterThan(0);
});

test("base64 is read as bytes and as float32", () => {
  expect([...bytes(encoded(Uint8Array.of(0, 127, 255)))]).toEqual([0, 127, 255]);
  expect([...floats(encoded(Float32Array.of(0.5, -2)))]).toEqual([0.5, -2]);
});

test.each([
  [0x0000, 0],
  [0x0001, 2 ** -24],
  [0x3c00, 1],
  [0xc100, -2.5],
  [0x7bff, 65504],
  [0x7c00, Infinity],
  [0xfc00, -Infinity],
  [0x7e00, Number.NaN],
])("the float16 bits %i are %d", (bits, value) => {
  expect([...halves(Uint8Array.of(bits & 255, bits >> 8))]).toEqual([value]);
});
