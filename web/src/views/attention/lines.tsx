// Head view: who looks (left), at whom (right). Point at a token to see its lines alone, press it to lock it.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { useWidth } from "../../canvas";
import { canvasPainter } from "../../painter";
import { colors } from "../../theme";
import { lock, type Choice, type Focus } from "./choice";
import { Looks } from "./weights_panel";
import { alike, drawStrokes, headColor, looks } from "./draw_lines";

const MANY = 120; // tokens from which lines get closer
const TALL = 1600; // pixels from which only what is in sight is drawn

export function Lines({ choice }: { choice: Choice }) {
  const [pointed, point] = useState<Focus | null>(null);
  const [element, width] = useWidth<HTMLDivElement>();
  const [said, say] = useState("");
  const { rows, columns, locked } = choice;
  const focus = inside(pointed, choice) ?? locked;
  const most = Math.max(rows.names.length, columns.names.length);
  const high = most > MANY ? 17 : 24;
  const sight = useSight(element, most * high);
  const middle = (index: number) => index * high + high / 2 - sight.top;
  const weights = useMemo(() => (focus ? looks(choice, focus) : null), [choice, focus?.side, focus?.index]);
  const draw = (context: CanvasRenderingContext2D) => {
    const painter = canvasPainter(context, colors.get().ink);
    const seen = [Math.floor(sight.top / high), Math.ceil((sight.top + sight.height) / high)] as const;
    const ends = { left: 2, right: width - 2, row: middle, column: middle, sight: seen };
    const { lines, left } = drawStrokes(painter, choice, focus, ends);
    const where = sight.height < most * high ? " in sight" : "";
    say(left > 0 ? `The ${lines.toLocaleString("en")} strongest lines${where} are drawn; ${left.toLocaleString("en")} weaker ones are not.` : "");
  };
  const tokens = (side: Focus["side"]) => (
    <Tokens
      names={(side === "row" ? rows : columns).names}
      side={side}
      high={high}
      locked={locked?.side === side ? locked.index : -1}
      focus={focus?.side === side ? focus.index : -1}
      weights={focus?.side === side ? null : weights}
      color={headColor(choice, 0)}
      point={point}
      press={(index) => lock(locked?.side === side && locked.index === index ? null : { side, index }, choice)}
    />
  );
  return (
    <div class="split">
      <div>
        <div class="lines" style={{ fontSize: most > MANY ? "12px" : "14px" }} onPointerLeave={() => point(null)}>
          {tokens("row")}
          <div ref={element} class="between" style={{ height: `${most * high}px` }}>
            <div style={{ transform: `translateY(${sight.top}px)` }}>
              <Canvas width={width} height={sight.height} inputs={[choice, focus?.side, focus?.index, high, sight]} draw={draw} />
            </div>
          </div>
          {tokens("column")}
        </div>
        <p class="muted note">{said}</p>
        {choice.source === "heads" && alike(choice) && <p class="muted">{alike(choice)}</p>}
      </div>
      <Looks choice={choice} focus={focus} weights={weights} />
    </div>
  );
}

interface Sight {
  readonly top: number;
  readonly height: number;
}

/** The part of a tall element that is in the window, and a little more; all of one that is not tall. */
function useSight(element: { readonly current: HTMLElement | null }, height: number): Sight {
  const [sight, set] = useState<Sight>({ top: 0, height: Math.min(height, TALL) });
  useEffect(() => {
    if (height <= TALL) return set({ top: 0, height });
    const look = () => {
      const above = -(element.current?.getBoundingClientRect().top ?? 0) - 100;
      const room = Math.min(height, innerHeight + 200);
      const top = Math.round(Math.max(0, Math.min(height - room, above)));
      set((before) => (before.top === top && before.height === room ? before : { top, height: room }));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [height]);
  return sight;
}

interface TokensProps {
  readonly names: readonly string[];
  readonly side: Focus["side"];
  readonly high: number;
  /** Which of them is locked, and which is in focus; -1 for none. */
  readonly locked: number;
  readonly focus: number;
  /** How strongly each is tied to the token in focus, one list a head. */
  readonly weights: readonly Float32Array[] | null;
  readonly color: string;
  point(focus: Focus | null): void;
  press(index: number): void;
}

function Tokens({ names, side, high, locked, focus, weights, color, point, press }: TokensProps) {
  const strength = (index: number) => (weights ? Math.round(60 * Math.max(...weights.map((list) => list[index] ?? 0)) ** 0.75) : 0);
  // A long text has a thousand of them: they are made again only when they look different.
  return useMemo(
    () => (
      <ol class={`tokens ${side}`} aria-label={side === "row" ? "Tokens that look" : "Tokens looked at"}>
        {names.map((name, index) => {
          const tint = strength(index);
          return (
            <li key={index} style={{ height: `${high}px` }}>
              <button
                type="button"
                dir="auto"
                class={focus === index ? "focus" : ""}
                aria-pressed={locked === index}
                style={tint > 0 ? { background: `color-mix(in srgb, ${color} ${tint}%, transparent)` } : {}}
                onPointerEnter={(event) => event.pointerType === "mouse" && point({ side, index })}
                onFocus={() => point({ side, index })}
                onBlur={() => point(null)}
                onClick={() => press(index)}
              >
                {name}
              </button>
            </li>
          );
        })}
      </ol>
    ),
    [names, side, high, locked, focus, weights, color],
  );
}

function inside(focus: Focus | null, choice: Choice): Focus | null {
  return focus && focus.index < (focus.side === "row" ? choice.rows : choice.columns).names.length ? focus : null;
}
