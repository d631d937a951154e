// Light and dark theme, and the colors of drawings.
import { Select } from "./components";
import { store } from "./store";

type Preference = "system" | "light" | "dark";

export interface Colors {
  readonly dark: boolean;
  readonly page: string;
  readonly ink: string;
  readonly muted: string;
  readonly rule: string;
  readonly accent: string;
  /** For negative values; `accent` is for positive ones. */
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

// The Okabe-Ito palette; on a light background dark red replaces yellow. A test checks that the colors differ for the
// three kinds of color blindness.
const SERIES_LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255"];
const SERIES_DARK = ["#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#0072b2", "#ffffff", "#f0e442"];

const KEY = "regard-theme";
const SYSTEM = "(prefers-color-scheme: dark)";
const preference = store<Preference>("system");
export const colors = store<Colors>(LIGHT);

/** Behind a token: stronger for a larger weight of attention. */
export const weightBackground = (weight: number) =>
  `color-mix(in srgb, var(--accent) calc(${Math.round(60 * weight)}% * var(--shade)), transparent)`;

/** The color of a series. Colors repeat after eight series; `dash` distinguishes more. */
export function series(number: number): string {
  const list = colors.get().dark ? SERIES_DARK : SERIES_LIGHT;
  return list[number % list.length]!;
}

// Lengths of dashes and gaps: solid, dashed, dotted, dash-dotted.
const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

/** Number of series that differ in color or dash. */
export const SERIES = SERIES_LIGHT.length * DASHES.length;

/** The dash pattern of a series; it changes every eight series. */
export function dash(number: number): readonly number[] {
  return DASHES[Math.floor(number / SERIES_LIGHT.length) % DASHES.length]!;
}

/** A CSS background with the color and dash of a series, for legends. */
export function strip(number: number): string {
  const [color, lengths] = [series(number), dash(number)];
  if (!lengths.length) return `linear-gradient(${color}, ${color})`;
  let at = 0;
  const stops = lengths.map((length, i) => {
    const from = at;
    at += length;
    return `${i % 2 ? "transparent" : color} ${from}px ${at}px`;
  });
  return `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
}

function apply(): void {
  const dark = preference.get() === "dark" || (preference.get() === "system" && matchMedia(SYSTEM).matches);
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
  colors.set(dark ? DARK : LIGHT);
}

function storedPreference(): Preference {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system"; // a page opened from disk may have no storage
  }
}

/** Applies the given theme, else the stored one, else the system's and its changes. */
export function followTheme(given?: Preference): void {
  preference.set(given ?? storedPreference());
  matchMedia(SYSTEM).addEventListener("change", apply);
  apply();
}

export function ThemeSwitch() {
  const current = preference.use();
  const change = (value: Preference) => {
    preference.set(value);
    try {
      localStorage.setItem(KEY, value);
    } catch {
      // the choice applies to this page only
    }
    apply();
  };
  return (
    <Select
      class="theme"
      label="Theme"
      options={["system", "light", "dark"]}
      value={current}
      onSelect={(value) => change(value as Preference)}
    />
  );
}
