// Head mode: queries on the left, keys on the right. Pointing at a token shows only its lines; pressing it locks it.
// Image mode: the patches that one patch, or [CLS], attends to. Pressing a patch selects it as the query.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Canvas, pointerIn, useWidth } from "../../canvas";
import { DataTable, Select, Token } from "../../components";
import { count, range } from "../../format";
import { useMotion } from "../../media";
import { loadImage, outline, type Painter } from "../../painter";
import { colors, dash, SERIES, series, strip } from "../../theme";
import { type Focus, type PatchImage, type Selection, setLock } from "./maps";

const ACROSS = 220; // pixels between the tokens that run across
const MAX_MOVING = 20_000; // weights
const MANY = 120; // tokens; longer texts get lower rows
const TALL = 1600; // pixels; of taller maps only the visible part is drawn

interface LinesProps {
  readonly selection: Selection;
  /** The weights of each head, on their way from those of another layer or head. */
  readonly shades: readonly Float32Array[];
}

export function Lines({ selection }: { selection: Selection }) {
  const shades = useShades(selection);
  return selection.across ? (
    <LinesAcross selection={selection} shades={shades} />
  ) : (
    <LinesDown selection={selection} shades={shades} />
  );
}

const shadesOf = ({ heads, maps, layer, threshold, ...options }: Selection) =>
  heads.map((head) => maps.shades(layer, head, options, threshold));

/** The weights that are drawn: a change of layer or head can be followed, unless there are too many lines. */
function useShades(selection: Selection): readonly Float32Array[] {
  const shades = useMemo(() => shadesOf(selection), [selection]);
  const size = shades[0]!.length;
  const joined = useMemo(() => {
    const all = new Float32Array(size * shades.length <= MAX_MOVING ? size * shades.length : 0);
    if (all.length) shades.forEach((list, number) => all.set(list, number * size));
    return all;
  }, [shades]);
  const moving = useMotion(joined);
  return useMemo(
    () => (moving.length ? shades.map((_, number) => moving.subarray(number * size, (number + 1) * size)) : shades),
    [shades, moving],
  );
}

/** The token in focus: the one under the pointer, or the locked one; and its weights. */
function useFocus(selection: Selection) {
  const [pointed, setPointed] = useState<Focus | null>(null);
  const axis = (side: Focus["side"]) => (side === "row" ? selection.rows : selection.columns);
  const focus = pointed && pointed.index < axis(pointed.side).labels.length ? pointed : selection.locked;
  const weights = useMemo(
    () => (focus ? focusWeights(selection, focus) : null),
    [selection, focus?.side, focus?.index],
  );
  return { focus, weights, setPointed, axis };
}

/** Where the tokens of both sides are when they run across: below each other, each as wide as the longer label. */
export interface TokenColumn {
  readonly center: number;
  readonly width: number;
}

export function tokenColumns(rows: readonly string[], columns: readonly string[]): readonly TokenColumn[] {
  let end = 0;
  return range(Math.max(rows.length, columns.length)).map((index) => {
    const width = 16 + 8.2 * Math.max([...(rows[index] ?? "")].length, [...(columns[index] ?? "")].length);
    end += width;
    return { center: end - width / 2, width };
  });
}

/** Queries on top, keys below. */
function LinesAcross({ selection, shades }: LinesProps) {
  const { rows, columns, locked } = selection;
  const { focus, weights, setPointed, axis } = useFocus(selection);
  const places = useMemo(() => tokenColumns(rows.labels, columns.labels), [rows, columns]);
  const last = places.at(-1)!;
  const width = Math.ceil(last.center + last.width / 2);
  const [status, setStatus] = useState("");
  const draw = (painter: Painter) => {
    const { drawn, omitted } = drawLines(
      painter,
      selection,
      focus,
      { down: true, row: (i) => [places[i]!.center, 2], column: (j) => [places[j]!.center, ACROSS - 2] },
      shades,
    );
    setStatus(
      omitted > 0 ? `The ${count(drawn)} strongest lines are drawn; ${count(omitted)} weaker ones are omitted.` : "",
    );
  };
  const tokens = (side: Focus["side"]) => (
    <Tokens
      labels={axis(side).labels}
      side={side}
      height={24}
      places={places}
      locked={locked?.side === side ? locked.index : -1}
      focus={focus?.side === side ? focus.index : -1}
      weights={focus?.side === side ? null : weights}
      selection={selection}
      onPoint={setPointed}
      onPress={(index) => setLock(locked?.side === side && locked.index === index ? null : { side, index }, selection)}
    />
  );
  return (
    <div class="split across">
      <div
        class="wide"
        tabIndex={0}
        role="region"
        aria-label="Lines between the tokens"
        onPointerLeave={() => setPointed(null)}
      >
        <div style={{ width: `${width}px` }}>
          {tokens("row")}
          <Canvas
            width={width}
            height={ACROSS}
            inputs={[selection, shades, focus?.side, focus?.index, places]}
            draw={draw}
          />
          {tokens("column")}
        </div>
        <p class="muted note">{status}</p>
      </div>
      <WeightsPanel selection={selection} focus={focus} weights={weights} />
    </div>
  );
}

function LinesDown({ selection, shades }: LinesProps) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [status, setStatus] = useState("");
  const { rows, columns, locked } = selection;
  const { focus, weights, setPointed, axis } = useFocus(selection);
  const most = Math.max(rows.labels.length, columns.labels.length);
  const height = most > MANY ? 17 : 24;
  const viewport = useViewport(element, most * height);
  const middle = (index: number) => index * height + height / 2 - viewport.top;
  const draw = (painter: Painter) => {
    const visible = [Math.floor(viewport.top / height), Math.ceil((viewport.top + viewport.height) / height)] as const;
    const { drawn, omitted } = drawLines(
      painter,
      selection,
      focus,
      { down: false, row: (i) => [2, middle(i)], column: (j) => [width - 2, middle(j)], visible },
      shades,
    );
    const where = viewport.height < most * height ? " of the visible part" : "";
    setStatus(
      omitted > 0
        ? `The ${count(drawn)} strongest lines${where} are drawn; ${count(omitted)} weaker ones are omitted.`
        : "",
    );
  };
  const tokens = (side: Focus["side"]) => (
    <Tokens
      labels={axis(side).labels}
      side={side}
      height={height}
      locked={locked?.side === side ? locked.index : -1}
      focus={focus?.side === side ? focus.index : -1}
      weights={focus?.side === side ? null : weights}
      selection={selection}
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
              <Canvas
                width={width}
                height={viewport.height}
                inputs={[selection, shades, focus?.side, focus?.index, height, viewport]}
                draw={draw}
              />
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
  /** Where the tokens are, if they run across. */
  readonly places?: readonly TokenColumn[];
  readonly selection: Selection;
  onPoint(focus: Focus | null): void;
  onPress(index: number): void;
}

function Tokens({ labels, side, height, places, locked, focus, weights, selection, onPoint, onPress }: TokensProps) {
  const color = headColor(selection, 0);
  const shade = shadeOf(selection);
  const tint = (index: number) =>
    weights ? Math.round(60 * shade(Math.max(...weights.map((list) => list[index] ?? 0))) ** 0.75) : 0;
  const size = (index: number) => (places ? { width: `${places[index]!.width}px` } : {});
  // A long text has a thousand tokens: they are rendered again only when they change.
  return useMemo(
    () => (
      <ol class={`tokens ${side}${places ? " across" : ""}`} aria-label={side === "row" ? "Queries" : "Keys"}>
        {labels.map((label, index) => (
          <li key={index} style={{ height: `${height}px`, ...size(index) }}>
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
    [labels, side, height, places, locked, focus, weights, color],
  );
}

/** From a weight to the strength of its color. */
function shadeOf({ maps, layer, heads, threshold, ...options }: Selection): (weight: number) => number {
  const [low, high] = maps.range(layer, heads[0]!, options);
  return (weight) => (weight < threshold ? 0 : Math.max(0, Math.min(1, (weight - low) / (high - low || 1))));
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
        <p class="muted">
          Point at a token to see what it attends to, or what attends to it. Press it to lock it; then the arrow keys
          change layer and head.
        </p>
      </aside>
    );
  }
  const { rows, columns, heads, source, threshold } = selection;
  const shade = shadeOf(selection);
  const [own, other] = focus.side === "row" ? [rows.labels, columns.labels] : [columns.labels, rows.labels];
  const largest = other.map((_, index) => Math.max(...weights.map((list) => list[index]!)));
  const above = other.map((_, index) => index).filter((index) => largest[index]! >= threshold);
  const order = above.sort((a, b) => largest[b]! - largest[a]! || a - b).slice(0, MAX_ROWS);
  const headers = heads.map((head, number) => (
    <>
      <span class="swatch" style={{ backgroundImage: headStrip(selection, number) }} />
      {source === "mean" || source === "max" ? (
        `${source} of heads`
      ) : source !== "heads" ? (
        source
      ) : heads.length > 3 ? (
        <span aria-label={`head ${head}`}>{head}</span>
      ) : (
        `head ${head}`
      )}
    </>
  ));
  const cells = (index: number) =>
    weights.map((list, number) => (
      <>
        <span
          class="bar"
          style={{ width: `${100 * shade(list[index]!)}%`, backgroundImage: headStrip(selection, number) }}
        />
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
      {above.length > MAX_ROWS && (
        <p class="muted note">
          The {MAX_ROWS} largest of {above.length}; CSV and JSON contain all.
        </p>
      )}
      {above.length < other.length && (
        <p class="muted note">
          {count(other.length - above.length)} below {threshold} are not shown.
        </p>
      )}
    </aside>
  );
}

const MAX_LINES = 3_000;
const LONG = 200; // tokens; longer texts get fewer lines
const MAX_LINES_LONG = 1_000;
const MAX_CURVES = 800;
const STEPS = 24; // of opacity

export interface LineGeometry {
  /** Whether lines run from top to bottom instead of from left to right. */
  readonly down: boolean;
  /** Where the lines of a query start, and those of a key end. */
  row(index: number): readonly [number, number];
  column(index: number): readonly [number, number];
  /** First and last visible row, if not all are. */
  readonly visible?: readonly [number, number];
}

/** The color of the selected head with this index. */
export function headColor(selection: Selection, number: number): string {
  return several(selection) ? series(selection.heads[number]!) : colors.get().accent;
}

/** The dash pattern; heads with the same color differ in it. */
export function headDash(selection: Selection, number: number): readonly number[] {
  return several(selection) ? dash(selection.heads[number]!) : [];
}

/** Color and dash as a CSS background, for legends. */
export function headStrip(selection: Selection, number: number): string {
  const { accent } = colors.get();
  return several(selection) ? strip(selection.heads[number]!) : `linear-gradient(${accent}, ${accent})`;
}

/** A warning if color and dash do not distinguish all selected heads. */
export function legendWarning({ heads }: Selection): string {
  const styles = new Set(heads.map((head) => head % SERIES));
  return styles.size < heads.length
    ? `Heads ${SERIES} apart have the same color and dash: select fewer heads to distinguish them.`
    : "";
}

function several(selection: Selection): boolean {
  return selection.source === "heads" && selection.heads.length > 1;
}

/**
 * Draws the lines of the selected heads, or only those of the token in focus; returns how many were drawn and omitted.
 */
export function drawLines(
  painter: Painter,
  selection: Selection,
  focus: Focus | null,
  geometry: LineGeometry,
  maps: readonly Float32Array[] = shadesOf(selection),
): { readonly drawn: number; readonly omitted: number } {
  const counts = new Uint32Array(256);
  visit(selection, focus, geometry.visible, (row, column) => {
    for (const map of maps) counts[Math.floor(map[row + column]! * 255)]!++;
  });
  const threshold = lowestStep(
    counts,
    Math.max(selection.rows.labels.length, selection.columns.labels.length) < LONG ? MAX_LINES : MAX_LINES_LONG,
  );
  const total = counts.reduce((sum, count, step) => (step ? sum + count : sum), 0);
  const buckets = new Map<number, number[]>();
  let drawn = 0;
  const across = selection.columns.labels.length;
  visit(selection, focus, geometry.visible, (row, column) => {
    maps.forEach((map, head) => {
      const weight = map[row + column]!;
      if (weight * 255 < threshold) return;
      const bucket = head * (STEPS + 1) + Math.ceil(weight ** 0.75 * STEPS);
      const list = buckets.get(bucket) ?? [];
      buckets.set(bucket, list);
      list.push(...geometry.row(row / across), ...geometry.column(column));
      drawn++;
    });
  });
  // Small weights first, so that large ones are on top.
  const order = [...buckets].sort(([a], [b]) => (a % (STEPS + 1)) - (b % (STEPS + 1)));
  for (const [bucket, list] of order) {
    const opacity = (bucket % (STEPS + 1)) / STEPS;
    const head = Math.floor(bucket / (STEPS + 1));
    painter.lines(
      list,
      headColor(selection, head),
      opacity,
      drawn <= MAX_CURVES && (geometry.down ? "down" : true),
      1 + opacity,
      headDash(selection, head),
    );
  }
  return { drawn, omitted: total - drawn };
}

/** Calls `cell` for each cell whose line may be visible, with its row times the number of columns, and its column. */
function visit(
  selection: Selection,
  focus: Focus | null,
  visible: LineGeometry["visible"],
  cell: (row: number, column: number) => void,
): void {
  const [down, across] = [selection.rows.labels.length, selection.columns.labels.length];
  const [top, bottom] = visible ?? [0, Math.max(down, across)];
  const [first, last] = focus?.side === "row" ? [focus.index, focus.index] : [0, down - 1];
  for (let row = first; row <= last; row++) {
    // A line that starts above or below the visible part is visible only if it ends inside.
    let [from, to] = [row < top ? top : 0, Math.min(across - 1, row > bottom ? bottom : across)];
    if (focus?.side === "column") [from, to] = [Math.max(from, focus.index), Math.min(to, focus.index)];
    for (let column = from; column <= to; column++) cell(row * across, column);
  }
}

/** The lowest of 255 weight steps that leaves at most `most` lines. */
function lowestStep(counts: Uint32Array, most: number): number {
  let total = 0;
  for (let step = 255; step > 0; step--) {
    total += counts[step]!;
    if (total > most) return Math.min(255, step + 1);
  }
  return 1; // zero weights are not drawn
}

/** The weights between the token in focus and each token of the other side, one array per head. */
export function focusWeights(selection: Selection, focus: Focus): Float32Array[] {
  const across = selection.columns.labels.length;
  return selection.heads.map((head) => {
    const map = selection.maps.weights(selection.layer, head, selection);
    if (focus.side === "row") return map.slice(focus.index * across, (focus.index + 1) * across);
    return Float32Array.from(selection.rows.labels, (_, row) => map[row * across + focus.index]!);
  });
}

const MAX_WIDTH = 520;

/** The query: the locked token, or the first. */
export const focusOf = ({ locked }: Selection): Focus => (locked?.side === "row" ? locked : { side: "row", index: 0 });

/** The number of tokens before the patches, such as [CLS]. */
const specialTokens = ({ columns }: Selection, { grid: [down, across] }: PatchImage) =>
  columns.labels.length - down * across;

/** The largest weight of each patch among the selected heads. */
function patchWeights(selection: Selection, image: PatchImage): number[] {
  const weights = focusWeights(selection, focusOf(selection));
  const special = specialTokens(selection, image);
  return range(image.grid[0] * image.grid[1]).map((patch) =>
    Math.max(...weights.map((list) => list[special + patch]!)),
  );
}

/** Width and height of an image whose longer side has this length; patches are square. */
export function sizeOf({ grid: [down, across] }: PatchImage, side: number): readonly [number, number] {
  const patch = side / Math.max(down, across);
  return [across * patch, down * patch];
}

/** The image, bright where weights are large; the query patch has a border. */
export function drawPatches(
  painter: Painter,
  selection: Selection,
  image: PatchImage,
  side: number,
  x = 0,
  y = 0,
): void {
  const [width, height] = sizeOf(image, side);
  const [down, across] = image.grid;
  const [patchWidth, patchHeight] = [width / across, height / down];
  const corner = (patch: number) =>
    [x + (patch % across) * patchWidth, y + Math.floor(patch / across) * patchHeight] as const;
  const patches = patchWeights(selection, image);
  const largest = Math.max(1e-9, ...patches);
  painter.image(image.source, x, y, width, height);
  patches.forEach((weight, patch) =>
    painter.rect(...corner(patch), patchWidth, patchHeight, "#000000", 0.8 * (1 - Math.sqrt(weight / largest))),
  );
  const query = focusOf(selection).index - specialTokens(selection, image);
  if (query >= 0) outline(painter, ...corner(query), patchWidth, patchHeight, colors.get().other, 1, 3);
}

export function ImageMode({ selection, image }: { selection: Selection; image: PatchImage }) {
  const [element, room] = useWidth<HTMLDivElement>();
  const [loaded, setLoaded] = useState("");
  useEffect(() => void loadImage(image.source).then(() => setLoaded(image.source)), [image.source]);
  const focus = focusOf(selection);
  const side = Math.min(MAX_WIDTH, room);
  const [width, height] = sizeOf(image, side);
  const [down, across] = image.grid;
  const select = (index: number) => setLock({ side: "row", index }, selection);
  const press = (event: MouseEvent) => {
    const pointer = pointerIn(event);
    select(
      specialTokens(selection, image) + Math.floor(pointer.down * down) * across + Math.floor(pointer.across * across),
    );
  };
  return (
    <div class="split">
      <div ref={element}>
        <Canvas
          width={width}
          height={height}
          inputs={[loaded, selection, focus.index]}
          label={`The image, bright where ${selection.rows.labels[focus.index]} attends`}
          canvas={{ onClick: press, class: "picture" }}
          draw={(painter) => drawPatches(painter, selection, image, side)}
        />
        <div class="choices">
          <Select
            label="Query patch"
            options={Object.fromEntries(selection.rows.labels.entries())}
            value={focus.index}
            onSelect={(index) => select(Number(index))}
          />
          <span class="muted">
            Bright patches have large weights; largest {Math.max(...patchWeights(selection, image)).toFixed(3)}.
          </span>
        </div>
      </div>
      <WeightsPanel selection={selection} focus={focus} weights={focusWeights(selection, focus)} />
    </div>
  );
}
