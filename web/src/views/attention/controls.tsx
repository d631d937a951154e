// The choices above the attention view: which maps, layer and heads, by pieces or words, from which text to which.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { setParameters } from "../../route";
import { series, strip } from "../../theme";
import { modesOf, type Choice, type Mode } from "./choice";
import type { Level, Pair, Source } from "./maps";
import type { AttentionPayload } from "./payload";

const MODES: Record<Mode, string> = { image: "Image", lines: "Heads", grid: "Model", neuron: "Neurons" };
const KINDS = { encoder: "encoder", decoder: "decoder", cross: "cross-attention", lstm: "LSTM attention", vit: "patches" };
const SOURCES: Record<Source, string> = { heads: "heads", rollout: "rollout", flow: "flow" };
const PAIRS: Record<Pair, string> = { all: "all", aa: "A → A", ab: "A → B", ba: "B → A", bb: "B → B" };
const LEVELS: Record<Level, string> = { piece: "pieces", word: "words" };

export function Controls({ payload, choice }: { payload: AttentionPayload; choice: Choice }) {
  const { maps, mode, source, level, pair, layer } = choice;
  const modes = Object.fromEntries(modesOf(payload, maps).map((one) => [one, MODES[one]]));
  return (
    <div class="choices">
      <Group title="View" values={modes} value={mode} setParameters={(value) => setParameters({ mode: value })} />
      {payload.maps.length > 1 && (
        <label>
          <span class="muted">Maps</span>
          <select value={choice.map} onChange={(event) => setParameters({ map: event.currentTarget.value, lock: "" })}>
            {payload.maps.map((one, number) => (
              <option key={number} value={number}>
                {KINDS[one.kind]}
              </option>
            ))}
          </select>
        </label>
      )}
      {mode !== "neuron" && maps.sources.length > 1 && (
        <Group
          title="Of"
          values={Object.fromEntries(maps.sources.map((one) => [one, SOURCES[one]]))}
          value={source}
          setParameters={(value) => setParameters({ source: value === "heads" ? "" : value })}
        />
      )}
      {mode !== "neuron" && maps.words && (
        <Group title="By" values={LEVELS} value={level} setParameters={(value) => setParameters({ level: value === "piece" ? "" : value })} />
      )}
      {maps.paired && <Group title="From → to" values={PAIRS} value={pair} setParameters={(value) => setParameters({ pair: value === "all" ? "" : value })} />}
      {source !== "flow" && <Stepper layer={layer} layers={maps.layers} />}
      {source === "heads" && <Heads choice={choice} />}
    </div>
  );
}

function Stepper({ layer, layers }: { layer: number; layers: number }) {
  if (layers < 2) return null;
  const step = (change: number) => setParameters({ layer: String(layer + change) });
  return (
    <fieldset>
      <legend>Layer</legend>
      <span class="group">
        <button type="button" aria-label="Layer below" disabled={layer === 0} onClick={() => step(-1)}>
          −
        </button>
        <select aria-label="Layer" value={layer} onChange={(event) => setParameters({ layer: event.currentTarget.value })}>
          {Array.from({ length: layers }, (_, number) => (
            <option key={number}>{number}</option>
          ))}
        </select>
        <button type="button" aria-label="Layer above" disabled={layer === layers - 1} onClick={() => step(1)}>
          +
        </button>
      </span>
    </fieldset>
  );
}

function Heads({ choice }: { choice: Choice }) {
  const { heads, maps, mode } = choice;
  const [several, set] = useState(heads.length > 1);
  if (maps.heads < 2) return null;
  const single = mode === "neuron" || mode === "grid";
  const press = (head: number, event: MouseEvent) => {
    if (single || (!several && !event.ctrlKey && !event.metaKey && !event.shiftKey)) return setParameters({ heads: String(head) });
    const next = heads.includes(head) ? heads.filter((one) => one !== head) : [...heads, head];
    setParameters({ heads: next.length === maps.heads ? "all" : next.join(",") });
  };
  const shown = single ? heads.slice(0, 1) : heads;
  return (
    <fieldset>
      <legend>{single ? "Head" : "Heads"}</legend>
      <span class={shown.length > 1 ? "heads several" : "heads"}>
        {Array.from({ length: maps.heads }, (_, head) => {
          const on = shown.includes(head);
          return (
            <button
              key={head}
              type="button"
              aria-pressed={on}
              aria-label={`Head ${head}`}
              style={on && shown.length > 1 ? { backgroundImage: strip(head), borderColor: series(head) } : {}}
              onClick={(event) => press(head, event)}
            >
              {head}
            </button>
          );
        })}
      </span>
      {!single && (
        <>
          <button type="button" aria-pressed={heads.length === maps.heads} onClick={() => setParameters({ heads: heads.length === maps.heads ? "0" : "all" })}>
            all
          </button>
          <label>
            <input type="checkbox" checked={several} onChange={(event) => set(event.currentTarget.checked)} />
            several
          </label>
        </>
      )}
    </fieldset>
  );
}

interface GroupProps {
  readonly title: string;
  readonly values: Readonly<Record<string, ComponentChildren>>;
  readonly value: string;
  setParameters(value: string): void;
}

function Group({ title, values, value, setParameters: pick }: GroupProps) {
  return (
    <fieldset>
      <legend>{title}</legend>
      <span class="group">
        {Object.entries(values).map(([name, label]) => (
          <button key={name} type="button" aria-pressed={name === value} onClick={() => pick(name)}>
            {label}
          </button>
        ))}
      </span>
    </fieldset>
  );
}
