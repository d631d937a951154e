// Tiles of a long attention map: their numbers, their places, and which request is answered.
import { expect, test } from "vitest";
import { nextTask, TILE, type TileAnswer, tileComputer, tileCount } from "../src/views/long_attention/tiles";

const base64 = (values: readonly number[]) => {
  const raw = new Uint8Array(Float32Array.from(values).buffer);
  return btoa(Array.from(raw, (byte) => String.fromCharCode(byte)).join(""));
};

function head(length: number, changes: { causal?: boolean; window?: number } = {}) {
  const zeros = base64(Array(length).fill(0));
  const normalizer = base64(Array(length).fill(Math.log(2)));
  return { query: zeros, key: zeros, normalizer, scale: 1, causal: false, window: null, ...changes };
}

async function answers(want: number, make: (send: ReturnType<typeof tileComputer>) => void) {
  const got: TileAnswer[] = [];
  make(tileComputer((answer) => got.push(answer)));
  for (let turn = 0; turn < 1000 && got.length < want; turn++) await nextTask();
  expect(got).toHaveLength(want);
  return got;
}

test("a weight is exp(scale * query . key - normalizer)", async () => {
  const [answer] = await answers(1, (send) => {
    send({ ...head(2), query: base64([1, 2, 3, 4]), key: base64([1, 0, 0, 1]), scale: 0.5 });
    send({ id: 1, row: 0, column: 0, size: 2 });
  });
  const expected = [0.5, 1, 1.5, 2].map((score) => Math.exp(score) / 2);
  expect([...answer!.tile.weights].map((value) => value.toFixed(4))).toEqual(expected.map((value) => value.toFixed(4)));
});

test("the mask of a causal or windowed head leaves zeros", async () => {
  const weights = async (changes: { causal?: boolean; window?: number }) => {
    const [answer] = await answers(1, (send) => {
      send(head(3, changes));
      send({ id: 1, row: 0, column: 0, size: 3 });
    });
    return [...answer!.tile.weights];
  };
  expect(await weights({ causal: true })).toEqual([0.5, 0, 0, 0.5, 0.5, 0, 0.5, 0.5, 0.5]);
  expect(await weights({ window: 1 })).toEqual([0.5, 0.5, 0, 0.5, 0.5, 0.5, 0, 0.5, 0.5]);
});

test("a part that is larger than a tile ends at the end of the map", async () => {
  const length = TILE + 10;
  expect(tileCount(length, length)).toBe(4);
  const got = await answers(4, (send) => {
    send(head(length));
    send({ id: 1, row: 0, column: 0, size: 2 * TILE });
  });
  expect(got.map(({ tile }) => [tile.row, tile.column, tile.rows, tile.columns])).toEqual([
    [0, 0, TILE, TILE],
    [0, TILE, TILE, 10],
    [TILE, 0, 10, TILE],
    [TILE, TILE, 10, 10],
  ]);
});

test("the newest request is answered whole", async () => {
  const length = 8 * TILE;
  const got: TileAnswer[] = [];
  const send = tileComputer((answer) => got.push(answer));
  send(head(length));
  send({ id: 1, row: 0, column: 0, size: length });
  send({ id: 2, row: 0, column: 0, size: TILE });
  for (let turn = 0; turn < 1000 && !got.some((one) => one.id === 2); turn++) await nextTask();
  await nextTask();
  const after = got.slice(got.findIndex((one) => one.id === 2));
  expect(after.map((one) => one.id)).toEqual([2]);
  expect(got.length).toBeLessThan(65);
});
