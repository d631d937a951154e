// Controls of the attention view: mode, maps, layer and heads, pieces or words, and segments.
import { useState } from "preact/hooks";
import { ButtonGroup, LayerSelect, Select } from "../../components";
import { setParameters } from "../../route";
import { series, strip } from "../../theme";
import type { AttentionPayload, Level, Segments, Source } from "./maps";
import { availableModes, type Mode, type Selection } from "./selection";

const MODES: Record<Mode, string> = { image: "Image", lines: "Heads", grid: "Model", neuron: "Neurons" };
const KINDS = { encoder: "encoder", decoder: "decoder", cross: "cross-attention", lstm: "LSTM attention", vit: "patches" };
const SOURCES: Record<Source, string> = { heads: "attention heads", rollout: "rollout", flow: "flow" };
const SEGMENTS: Record<Segments, string> = { all: "all", aa: "A → A", ab: "A → B", ba: "B → A", bb: "B → B" };
const LEVELS: Record<Level, string> = { piece: "subwords", word: "words" };

export function Controls({ payload, selection }: { payload: AttentionPayload; selection: Selection }) {
  const { maps, mode, source, level, pair, layer } = selection;
  const modes = Object.fromEntries(availableModes(payload, maps).map((one) => [one, MODES[one]]));
  const sources = Object.fromEntries(maps.sources.map((one) => [one, SOURCES[one]]));
  const kinds = Object.fromEntries(payload.maps.map((one, index) => [index, KINDS[one.kind]]));
  // A default is removed from the route.
  const set = (name: string, fallback: string) => (value: string) => setParameters({ [name]: value === fallback ? "" : value });
  return (
    <div class="choices">
      <ButtonGroup title="View" options={modes} value={mode} onSelect={(value) => setParameters({ mode: value })} />
      {payload.maps.length > 1 && <Select label="Maps" options={kinds} value={selection.map} onSelect={(value) => setParameters({ map: value, lock: "" })} />}
      {mode !== "neuron" && maps.sources.length > 1 && <ButtonGroup title="Show" options={sources} value={source} onSelect={set("source", "heads")} />}
      {mode !== "neuron" && maps.hasWords && <ButtonGroup title="Tokens" options={LEVELS} value={level} onSelect={set("level", "piece")} />}
      {maps.paired && <ButtonGroup title="From → to" options={SEGMENTS} value={pair} onSelect={set("pair", "all")} />}
      {source !== "flow" && <LayerSelect layer={layer} layers={maps.layers} onSelect={(value) => setParameters({ layer: value })} />}
      {source === "heads" && <HeadButtons selection={selection} />}
    </div>
  );
}

function HeadButtons({ selection }: { selection: Selection }) {
  const { heads, maps, mode } = selection;
  const [several, setSeveral] = useState(heads.length > 1);
  if (maps.heads < 2) return null;
  const single = mode === "neuron" || mode === "grid";
  const press = (head: number, event: MouseEvent) => {
    if (single || (!several && !event.ctrlKey && !event.metaKey && !event.shiftKey)) return setParameters({ heads: String(head) });
    const next = heads.includes(head) ? heads.filter((one) => one !== head) : [...heads, head];
    setParameters({ heads: next.length === maps.heads ? "all" : next.join(",") });
  };
  const shown = single ? heads.slice(0, 1) : heads;
  const all = heads.length === maps.heads;
  return (
    <fieldset>
      <legend>{single ? "Head" : "Heads"}</legend>
      <span class={shown.length > 1 ? "heads several" : "heads"}>
        {Array.from({ length: maps.heads }, (_, head) => {
          const on = shown.includes(head);
          const style = on && shown.length > 1 ? { backgroundImage: strip(head), borderColor: series(head) } : {};
          return (
            <button key={head} type="button" aria-pressed={on} aria-label={`Head ${head}`} style={style} onClick={(event) => press(head, event)}>
              {head}
            </button>
          );
        })}
      </span>
      {!single && (
        <>
          <button type="button" aria-pressed={all} onClick={() => setParameters({ heads: all ? "0" : "all" })}>
            all
          </button>
          <label>
            <input type="checkbox" checked={several} onChange={(event) => setSeveral(event.currentTarget.checked)} />
            several
          </label>
        </>
      )}
    </fieldset>
  );
}
