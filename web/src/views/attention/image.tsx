// Patches over the image: where one patch, or [CLS], looks. Press a patch to ask from there.
import { useEffect, useState } from "preact/hooks";
import { Canvas } from "../../canvas";
import { useWidth } from "../../canvas";
import { colors } from "../../theme";
import { lock, type Choice } from "./choice";
import { Looks } from "./weights_panel";
import { looks } from "./draw_lines";

const LARGEST = 520;

interface Props {
  readonly choice: Choice;
  readonly source: string;
  readonly grid: readonly [number, number];
}

export function Picture({ choice, source, grid: [down, across] }: Props) {
  const [element, room] = useWidth<HTMLDivElement>();
  const [picture, show] = useState<HTMLImageElement | null>(null);
  useEffect(() => {
    const loading = new Image();
    loading.onload = () => show(loading);
    loading.src = source;
  }, [source]);
  const before = choice.columns.names.length - down * across; // [CLS] and its like
  const focus = choice.locked?.side === "row" ? choice.locked : { side: "row" as const, index: 0 };
  const weights = looks(choice, focus);
  const width = Math.min(LARGEST, room);
  const height = picture ? Math.round((width * picture.naturalHeight) / picture.naturalWidth) : width;
  const patches = Array.from({ length: down * across }, (_, patch) => Math.max(...weights.map((list) => list[before + patch]!)));
  const most = Math.max(1e-9, ...patches);
  const press = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * down);
    const column = Math.floor(((event.clientX - box.left) / box.width) * across);
    lock({ side: "row", index: before + row * across + column }, choice);
  };
  return (
    <div class="split">
      <div ref={element}>
        <Canvas
          width={width}
          height={height}
          inputs={[picture, choice, focus.index]}
          label={`The image, bright where ${choice.rows.names[focus.index]} looks`}
          canvas={{ onClick: press, class: "picture" }}
          draw={(context) => {
            if (!picture) return;
            context.drawImage(picture, 0, 0, width, height);
            patches.forEach((weight, patch) => {
              const [row, column] = [Math.floor(patch / across), patch % across];
              context.fillStyle = "#000000";
              context.globalAlpha = 0.8 * (1 - Math.sqrt(weight / most));
              context.fillRect((column * width) / across, (row * height) / down, width / across + 0.5, height / down + 0.5);
            });
            context.globalAlpha = 1;
            if (focus.index >= before) {
              const patch = focus.index - before;
              context.strokeStyle = colors.get().other;
              context.lineWidth = 3;
              context.strokeRect(((patch % across) * width) / across, (Math.floor(patch / across) * height) / down, width / across, height / down);
            }
          }}
        />
        <div class="choices">
          <label>
            <span class="muted">Patch that looks</span>
            <select value={focus.index} onChange={(event) => lock({ side: "row", index: Number(event.currentTarget.value) }, choice)}>
              {choice.rows.names.map((name, index) => (
                <option key={index} value={index}>
                  {name}
                </option>
              ))}
            </select>
          </label>
          <span class="muted">Bright: looked at; strongest {most.toFixed(3)}.</span>
        </div>
      </div>
      <Looks choice={choice} focus={focus} weights={weights} />
    </div>
  );
}
