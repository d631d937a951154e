// Light or dark, as the system says or as the user wants. Knows the page's colours for what is drawn, not styled.
import { store } from "./store";

export type Wish = "system" | "light" | "dark";

export interface Colors {
  readonly dark: boolean;
  readonly page: string;
  readonly ink: string;
  readonly muted: string;
  readonly rule: string;
  readonly accent: string;
  /** For what is below zero beside `accent` above. */
  readonly other: string;
}

const LIGHT: Colors = {
  dark: false,
  page: "#ffffff",
  ink: "#1b1f24",
  muted: "#59636e",
  rule: "#d1d9e0",
  accent: "#0b5cad",
  other: "#b84a00",
};
const DARK: Colors = {
  dark: true,
  page: "#11151a",
  ink: "#e6edf3",
  muted: "#9aa6b2",
  rule: "#333c46",
  accent: "#66aef2",
  other: "#ff9d4d",
};

// Okabe and Ito's colours, in the order of their use; yellow gives way to wine red on a light ground. A test holds them
// apart for the three kinds of colour blindness.
const SERIES_LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255"];
const SERIES_DARK = ["#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#0072b2", "#ffffff", "#f0e442"];

const KEY = "regard-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const wish = store<Wish>(remembered());
export const colors = store<Colors>(LIGHT);

/** The colour of series `number`; they repeat after eight, so that more need another sign too, such as `dash`. */
export function series(number: number): string {
  const list = colors.get().dark ? SERIES_DARK : SERIES_LIGHT;
  return list[number % list.length]!;
}

// Lengths of strokes and gaps: whole, dashed, dotted, both in turn.
const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

/** How many series differ in colour or dash. */
export const SERIES = SERIES_LIGHT.length * DASHES.length;

/** The dash of a line of series `number`: another one for every eight. */
export function dash(number: number): readonly number[] {
  return DASHES[Math.floor(number / SERIES_LIGHT.length) % DASHES.length]!;
}

/** A strip in the colour and dash of series `number`, for a legend in CSS. */
export function strip(number: number): string {
  const [color, lengths] = [series(number), dash(number)];
  if (!lengths.length) return `linear-gradient(${color}, ${color})`;
  let at = 0;
  const stops = lengths.map((length, place) => `${place % 2 ? "transparent" : color} ${at}px ${(at += length)}px`);
  return `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
}

function apply(): void {
  const dark = wish.get() === "dark" || (wish.get() === "system" && system.matches);
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
  colors.set(dark ? DARK : LIGHT);
}

function remembered(): Wish {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system"; // a file opened from disk may have no storage
  }
}

system.addEventListener("change", apply);
apply();

export function ThemeSwitch() {
  const current = wish.use();
  const change = (value: Wish) => {
    wish.set(value);
    try {
      localStorage.setItem(KEY, value);
    } catch {
      // then it holds for this page only
    }
    apply();
  };
  return (
    <label class="theme">
      <span class="muted">Colours</span>
      <select value={current} onChange={(event) => change(event.currentTarget.value as Wish)}>
        <option value="system">as the system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  );
}
