// Tiles of the part of an attention map that is shown, computed in a worker. The worker's script is part of the page's
// own (a blob), so that it also starts in exported files; if a browser refuses it, the page computes the tiles, a few
// milliseconds at a time.
import { useEffect, useRef, useState } from "preact/hooks";
import TileWorker from "./tile_worker?worker&inline";
import {
  type EncodedHead,
  nextTask,
  type Tile,
  type TileAnswer,
  type TileMessage,
  type TileRequest,
  tileComputer,
} from "./tiles";

interface TileSource {
  send(request: TileRequest): void;
  close(): void;
}

function openTileSource(
  { query, key, normalizer, scale, causal, window }: EncodedHead,
  answer: (answer: TileAnswer) => void,
): TileSource {
  let worker: Worker | null = null;
  let open = true;
  let last: TileRequest | null = null;
  let post: ((message: TileMessage) => void) | null = null; // once the head has been sent
  /** Sends a few megabytes at a time. They are decoded by the receiver: decoding takes longer than sending the text. */
  const start = async (target: NonNullable<typeof post>) => {
    for (const part of [{ query }, { key }, { normalizer, scale, causal, window }]) {
      target(part);
      await nextTask();
      if (!open) return;
    }
    post = target;
    if (last) post(last);
  };
  const computeHere = () => {
    worker?.terminate();
    worker = null;
    if (open) void start(tileComputer((one) => open && answer(one)));
  };
  try {
    const started = new TileWorker();
    worker = started;
    started.onmessage = ({ data }: MessageEvent<TileAnswer | "ready">) => {
      if (data === "ready") void start((message) => started.postMessage(message));
      else answer(data);
    };
    started.onerror = (event) => {
      event.preventDefault();
      computeHere();
    };
  } catch {
    computeHere();
  }
  return {
    send(request) {
      last = request;
      post?.(request);
    },
    close() {
      open = false;
      worker?.terminate();
    },
  };
}

interface Part {
  readonly head: EncodedHead;
  readonly request: TileRequest;
  readonly tiles: readonly Tile[];
}

/** The tiles of a part that are computed so far. Those of an earlier part or head are dropped. */
export function useTiles(head: EncodedHead, row: number, column: number, size: number): readonly Tile[] {
  const [part, setPart] = useState<Part | null>(null);
  const source = useRef<TileSource | null>(null);
  const newest = useRef<Part | null>(null);
  useEffect(() => {
    const opened = openTileSource(head, ({ id, tile }) => {
      const current = newest.current;
      if (current?.head !== head || current.request.id !== id) return;
      newest.current = { ...current, tiles: [...current.tiles, tile] };
      setPart(newest.current);
    });
    source.current = opened;
    return () => opened.close();
  }, [head]);
  useEffect(() => {
    const request = { id: (newest.current?.request.id ?? 0) + 1, row, column, size };
    newest.current = { head, request, tiles: [] };
    source.current!.send(request);
  }, [head, row, column, size]);
  if (part?.head !== head) return [];
  const { request, tiles } = part;
  return request.row === row && request.column === column && request.size === size ? tiles : [];
}
