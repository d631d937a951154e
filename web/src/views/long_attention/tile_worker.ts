// Computes tiles of an attention map in a worker. Their weights are transferred to the page, not copied.
import { type TileMessage, tileComputer } from "./tiles";

/** What a worker's global scope has; the types of the page describe a window. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<TileMessage>) => void) | null;
  postMessage(message: unknown, transfer: readonly Transferable[]): void;
}

const scope = self as unknown as WorkerScope;
const receive = tileComputer((answer) => scope.postMessage(answer, [answer.tile.weights.buffer]));
scope.onmessage = ({ data }) => receive(data);
scope.postMessage("ready", []);
