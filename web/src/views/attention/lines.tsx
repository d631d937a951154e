// Head mode: queries on the left, keys on the right. Pointing at a token shows only its lines; pressing it locks it.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Canvas, useWidth } from "../../canvas";
import { DataTable, Token } from "../../components";
import { count } from "../../format";
import type { Painter } from "../../painter";
import { drawLines, focusWeights, headColor, headStrip, legendWarning } from "./draw_lines";
import { type Focus, type Selection, setLock } from "./selection";

const MANY = 120; // tokens; longer texts get lower rows
const TALL = 1600; // pixels; of taller maps only the visible part is drawn

export function Lines({ selection }: { selection: Selection }) {
  const [pointed, setPointed] = useState<Focus | null>(null);
  const [element, width] = useWidth<HTMLDivElement>();
  const [status, setStatus] = useState("");
  const { rows, columns, locked } = selection;
  const axis = (side: Focus["side"]) => (side === "row" ? rows : columns);
  const focus = pointed && pointed.index < axis(pointed.side).labels.length ? pointed : locked;
  const most = Math.max(rows.labels.length, columns.labels.length);
  const height = most > MANY ? 17 : 24;
  const viewport = useViewport(element, most * height);
  const middle = (index: number) => index * height + height / 2 - viewport.top;
  const weights = useMemo(() => (focus ? focusWeights(selection, focus) : null), [selection, focus?.side, focus?.index]);
  const draw = (painter: Painter) => {
    const visible = [Math.floor(viewport.top / height), Math.ceil((viewport.top + viewport.height) / height)] as const;
    const { drawn, omitted } = drawLines(painter, selection, focus, { left: 2, right: width - 2, row: middle, column: middle, visible });
    const where = viewport.height < most * height ? " of the visible part" : "";
    setStatus(omitted > 0 ? `The ${count(drawn)} strongest lines${where} are drawn; ${count(omitted)} weaker ones are omitted.` : "");
  };
  const tokens = (side: Focus["side"]) => (
    <Tokens
      labels={axis(side).labels}
      side={side}
      height={height}
      locked={locked?.side === side ? locked.index : -1}
      focus={focus?.side === side ? focus.index : -1}
      weights={focus?.side === side ? null : weights}
      color={headColor(selection, 0)}
      onPoint={setPointed}
      onPress={(index) => setLock(locked?.side === side && locked.index === index ? null : { side, index }, selection)}
    />
  );
  return (
    <div class="split">
      <div>
        <div class="lines" style={{ fontSize: most > MANY ? "12px" : "14px" }} onPointerLeave={() => setPointed(null)}>
          {tokens("row")}
          <div ref={element} class="between" style={{ height: `${most * height}px` }}>
            <div style={{ transform: `translateY(${viewport.top}px)` }}>
              <Canvas width={width} height={viewport.height} inputs={[selection, focus?.side, focus?.index, height, viewport]} draw={draw} />
            </div>
          </div>
          {tokens("column")}
        </div>
        <p class="muted note">{status}</p>
        {selection.source === "heads" && legendWarning(selection) && <p class="muted">{legendWarning(selection)}</p>}
      </div>
      <WeightsPanel selection={selection} focus={focus} weights={weights} />
    </div>
  );
}

interface Viewport {
  readonly top: number;
  readonly height: number;
}

/** The part of a tall element that is in the window, with a margin; all of an element that is not tall. */
function useViewport(element: { readonly current: HTMLElement | null }, height: number): Viewport {
  const [viewport, setViewport] = useState<Viewport>({ top: 0, height: Math.min(height, TALL) });
  useEffect(() => {
    if (height <= TALL) return setViewport({ top: 0, height });
    const measure = () => {
      const above = -(element.current?.getBoundingClientRect().top ?? 0) - 100;
      const room = Math.min(height, innerHeight + 200);
      const top = Math.round(Math.max(0, Math.min(height - room, above)));
      setViewport((before) => (before.top === top && before.height === room ? before : { top, height: room }));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [height]);
  return viewport;
}

interface TokensProps {
  readonly labels: readonly string[];
  readonly side: Focus["side"];
  readonly height: number;
  /** Indices of the locked token and the one in focus; -1 for none. */
  readonly locked: number;
  readonly focus: number;
  /** Weights between each token and the one in focus, one array per head. */
  readonly weights: readonly Float32Array[] | null;
  readonly color: string;
  onPoint(focus: Focus | null): void;
  onPress(index: number): void;
}

function Tokens({ labels, side, height, locked, focus, weights, color, onPoint, onPress }: TokensProps) {
  const tint = (index: number) => (weights ? Math.round(60 * Math.max(...weights.map((list) => list[index] ?? 0)) ** 0.75) : 0);
  // A long text has a thousand tokens: they are rendered again only when they change.
  return useMemo(
    () => (
      <ol class={`tokens ${side}`} aria-label={side === "row" ? "Queries" : "Keys"}>
        {labels.map((label, index) => (
          <li key={index} style={{ height: `${height}px` }}>
            <button
              type="button"
              dir="auto"
              class={focus === index ? "focus" : ""}
              aria-pressed={locked === index}
              style={tint(index) > 0 ? { background: `color-mix(in srgb, ${color} ${tint(index)}%, transparent)` } : {}}
              onPointerEnter={(event) => event.pointerType === "mouse" && onPoint({ side, index })}
              onFocus={() => onPoint({ side, index })}
              onBlur={() => onPoint(null)}
              onClick={() => onPress(index)}
            >
              {label}
            </button>
          </li>
        ))}
      </ol>
    ),
    [labels, side, height, locked, focus, weights, color],
  );
}

const MAX_ROWS = 12;

interface Props {
  readonly selection: Selection;
  readonly focus: Focus | null;
  /** For each head, the weight of each token of the other side. */
  readonly weights: readonly Float32Array[] | null;
}

export function WeightsPanel({ selection, focus, weights }: Props) {
  if (!focus || !weights) {
    return (
      <aside class="weights-panel">
        <p class="muted">Point at a token to see what it attends to, or what attends to it. Press it to lock it; then the arrow keys change layer and head.</p>
      </aside>
    );
  }
  const { rows, columns, heads, source } = selection;
  const [own, other] = focus.side === "row" ? [rows.labels, columns.labels] : [columns.labels, rows.labels];
  const largest = other.map((_, index) => Math.max(...weights.map((list) => list[index]!)));
  const order = other.map((_, index) => index).sort((a, b) => largest[b]! - largest[a]! || a - b).slice(0, MAX_ROWS);
  const headers = heads.map((head, number) => (
    <>
      <span class="swatch" style={{ backgroundImage: headStrip(selection, number) }} />
      {source !== "heads" ? source : heads.length > 3 ? <span aria-label={`head ${head}`}>{head}</span> : `head ${head}`}
    </>
  ));
  const cells = (index: number) =>
    weights.map((list, number) => (
      <>
        <span class="bar" style={{ width: `${100 * list[index]!}%`, backgroundImage: headStrip(selection, number) }} />
        {list[index]!.toFixed(3)}
      </>
    ));
  return (
    <aside class="weights-panel">
      <h3>
        <Token text={own[focus.index]} /> {focus.side === "row" ? "attends to" : "is attended to by"}
      </h3>
      <DataTable
        class="weights"
        label="Weights of the token in focus"
        headers={["token", ...headers]}
        rows={order.map((index) => [other[index], ...cells(index)])}
        rowProps={(row) => ({ "data-index": order[row] })}
      />
      {other.length > MAX_ROWS && <p class="muted note">The {MAX_ROWS} largest of {other.length}; CSV and JSON contain all.</p>}
    </aside>
  );
}
