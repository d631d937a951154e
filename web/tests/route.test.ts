// The address: what is read from it, and that what is written can be read again.
import { beforeEach, expect, test } from "vitest";
import {
  currentRoute,
  formatRoute,
  frameOf,
  frameParameters,
  integerParameter,
  layerParameter,
  navigate,
  parseRoute,
  setParameters,
  withoutEmpty,
} from "../src/route";

beforeEach(() => currentRoute.set({ view: "", parameters: {} }));

test("an address has a view and its parameters", () => {
  expect(parseRoute("#attention?text=the+cat&layer=3")).toEqual({
    view: "attention",
    parameters: { text: "the cat", layer: "3" },
  });
  expect(parseRoute("")).toEqual({ view: "", parameters: {} });
});

test.each([
  ["a question mark", "why? because"],
  ["what separates parameters", "a=b&c#d"],
  ["lines", "one\ntwo"],
  ["other alphabets", "猫 Ω 🐈"],
  ["a percent sign", "100 %41"],
])("an address that contains %s is read as it was written", (_, text) => {
  const route = { view: "fill", parameters: { text, model: "a/b" } };
  expect(parseRoute(formatRoute(route))).toEqual(route);
});

test("an empty parameter is removed, and the others stay", () => {
  navigate({ view: "lens", parameters: { text: "a", layer: "2" } });
  setParameters({ layer: "", head: "1" });
  expect(currentRoute.get()).toEqual({ view: "lens", parameters: { text: "a", head: "1" } });
  expect(withoutEmpty({ a: "", b: "1" })).toEqual({ b: "1" });
});

test.each([
  ["3", 3],
  ["0", 0],
  ["4", 1],
  ["-1", 1],
  ["x", 1],
  [undefined, 1],
])("the integer %s of 0 to 3 is read as %d", (text, value) => {
  expect(integerParameter(text === undefined ? {} : { head: text }, "head", 4, 1)).toBe(value);
});

test("layers count from 1", () => {
  expect([undefined, "0", "1", "12", "13"].map((layer) => layerParameter(layer ? { layer } : {}, 12))).toEqual([
    1, 1, 1, 12, 1,
  ]);
});

test("the frame stays when another view opens", () => {
  const route = { view: "fill", parameters: { embed: "1", text: "a" } };
  expect(frameOf(route)).toBe("embed");
  expect(frameOf({ ...route, parameters: {} })).toBe("full");
  expect(frameParameters(route)).toEqual({ embed: "1" });
});
