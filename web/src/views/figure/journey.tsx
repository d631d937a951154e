// A token that moves through Figure 1, from box to box and from layer to layer: played, or one step at a time.
import { useEffect, useState } from "preact/hooks";
import { Select } from "../../components";
import { percent, truncate } from "../../format";
import { currentRoute, integerParameter, setParameters } from "../../route";
import type { BoxView } from "../../types";
import { layoutOf } from "./layout";
import { type FigurePayload, formatNumber, matrixOf, type Selection, visibleToken } from "./payload";

const INTERVAL = 900; // milliseconds at each box
const FIRST = 3; // numbers of the vector that the caption shows

/** A box and the layer it is passed in. */
interface Stop {
  readonly name: string;
  readonly box: BoxView;
  readonly layer: number;
}

/** Every box in the order in which a token passes it; those of the stack once for every layer. */
export function stopsOf({ boxes, model }: FigurePayload): Stop[] {
  const all = Object.entries(boxes).map(([name, box]) => ({ name, box, layer: 1 }));
  return [...new Set(all.map(({ box }) => box.part))].flatMap((part) => {
    const group = (name: string) => all.filter(({ box }) => box.part === part && box.group === name);
    const layers = Array.from({ length: model.depth }, (_, index) =>
      group("layer").map((stop) => ({ ...stop, layer: index + 1 })),
    );
    return [...group("in"), ...layers.flat(), ...group("out")];
  });
}

export interface Journey {
  readonly moving: boolean;
  readonly playing: boolean;
  readonly stop: number;
  readonly stops: readonly Stop[];
  /** Row of the token in the half of the selected box. */
  readonly row: number;
  play(): void;
  pause(): void;
  /** Goes to the next stop, or from the last one to the first. */
  step(): void;
  leave(): void;
}

/** The token is where the selected box is, so that the panel beside the figure always shows what happens to it. */
export function useJourney(payload: FigurePayload, selection: Selection): Journey {
  const [moving, setMoving] = useState(false);
  const [playing, setPlaying] = useState(false);
  const { parameters } = currentRoute.use();
  const stops = stopsOf(payload);
  const stop = stops.findIndex(
    ({ name, box, layer }) => name === selection.name && (box.group !== "layer" || layer === selection.layer),
  );
  const last = stop === stops.length - 1;
  const go = (number: number) =>
    setParameters({ box: stops[number]!.name, layer: String(stops[number]!.layer), tensor: "" });
  useEffect(() => {
    if (!playing) return;
    if (last) return setPlaying(false);
    const timer = setTimeout(() => go(stop + 1), INTERVAL);
    return () => clearTimeout(timer);
  }, [playing, stop, last]);
  const begin = () => {
    setMoving(true);
    go(moving && !last ? stop + 1 : 0);
  };
  return {
    moving,
    playing,
    stop,
    stops,
    row: integerParameter(parameters, "row", payload.tokens[selection.box.part]!.length),
    play: () => {
      begin();
      setPlaying(true);
    },
    pause: () => setPlaying(false),
    step: () => {
      setPlaying(false);
      begin();
    },
    leave: () => {
      setPlaying(false);
      setMoving(false);
    },
  };
}

const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export function JourneyControls({
  payload,
  selection,
  journey,
}: {
  payload: FigurePayload;
  selection: Selection;
  journey: Journey;
}) {
  const { moving, playing, stop, stops, row, play, pause, step, leave } = journey;
  const tokens = Object.values(payload.tokens)[0]!;
  const names = tokens.map(
    (token, number) => [String(number), `${number}: ${truncate(visibleToken(token), 14)}`] as const,
  );
  const { parameters } = currentRoute.use();
  return (
    <div class="figure-journey">
      <div class="choices">
        <Select
          label="Follow token"
          options={names}
          value={integerParameter(parameters, "row", tokens.length)}
          onSelect={(value) => setParameters({ row: value })}
        />
        <span class="group" role="group" aria-label="Token through the figure">
          {!reducedMotion() && (
            <button type="button" onClick={playing ? pause : play}>
              {playing ? "Pause" : "Play"}
            </button>
          )}
          <button type="button" onClick={step}>
            Step
          </button>
          {moving && (
            <button type="button" onClick={leave}>
              End
            </button>
          )}
        </span>
      </div>
      <p class={`muted figure-caption${moving ? " moving" : ""}`} aria-live={playing ? "off" : "polite"}>
        {moving && `Step ${stop + 1} of ${stops.length}: ${caption(payload, selection, row)}`}
      </p>
    </div>
  );
}

/** What the selected box makes of the token. */
function caption(payload: FigurePayload, { box, layer, step, name }: Selection, row: number): string {
  const token = visibleToken(payload.tokens[box.part]![row]!);
  const inLayer = box.group === "layer" ? `, layer ${layer} of ${payload.model.depth}` : "";
  const where = `${box.title} of the ${box.part}${inLayer}`;
  const tensor = payload.tensors[step.tensors.find(([one]) => one === "out")![1]]!;
  if (tensor.words) {
    const [word, value] = tensor.words[row]![0]!;
    return (
      `${where}. The most probable token ${box.part === "decoder" ? "after" : "at"} “${token}” is ` +
      `“${visibleToken(word)}” (${box.kind === "softmax" ? percent(value) : `logit ${value.toFixed(2)}`}).`
    );
  }
  const { values, width } = matrixOf(payload, tensor, 0);
  const first = Array.from(values.subarray(row * width, row * width + FIRST), formatNumber);
  const source = name.endsWith(".cross") ? " Its keys and values come from the encoder's output." : "";
  return `${where}.${source} “${token}” leaves it as ${first.join(", ")}, … (${width} numbers).`;
}

/** The token on the line above the selected box. */
export function MovingToken({
  payload,
  selection,
  journey,
  scale,
}: {
  payload: FigurePayload;
  selection: Selection;
  journey: Journey;
  scale: number;
}) {
  if (!journey.moving) return null;
  const { shapes } = layoutOf(payload);
  const shape = shapes.find(({ box }) => box === selection.name)!;
  // Positions are added on the line of the column beside their box.
  const onSide = shape.kind === "positions";
  const column = onSide
    ? shapes.find(({ box, kind }) => kind !== "positions" && payload.boxes[box]!.part === selection.box.part)!
    : shape;
  const [x, y] = [column.x + column.width / 2, onSide ? shape.y + shape.height / 2 : shape.y - 7];
  return (
    <span class="figure-token" style={{ left: `${x * scale}px`, top: `${y * scale}px` }}>
      {truncate(visibleToken(payload.tokens[selection.box.part]![journey.row]!), 12)}
    </span>
  );
}
