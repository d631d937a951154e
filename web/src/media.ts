// The size of the window, what the user asked for, and motion between two states of a picture.
import { useEffect, useRef, useState } from "preact/hooks";

/** Whether a media query holds now; rendered again when it changes. */
export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const update = () => setMatches(media.matches);
    media.addEventListener("change", update);
    update();
    return () => media.removeEventListener("change", update);
  }, [query]);
  return matches;
}

export const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const DURATION = 240; // milliseconds

/**
 * The numbers on their way from the previous ones to `values`, so that a change of layer or head can be followed. They
 * arrive at once if the user asks for reduced motion or if their count changes.
 */
export function useMotion(values: Float32Array): Float32Array {
  const [shown, setShown] = useState(values);
  const latest = useRef(values);
  useEffect(() => {
    const from = latest.current;
    const move = (now: Float32Array) => {
      latest.current = now;
      setShown(now);
    };
    const same = from.length === values.length && from.every((value, index) => value === values[index]);
    if (same || from.length !== values.length || prefersReducedMotion()) return move(values);
    const start = performance.now();
    let frame = requestAnimationFrame(function step(time: number) {
      const part = Math.min(1, Math.max(0, (time - start) / DURATION));
      if (part === 1) return move(values);
      const eased = part * part * (3 - 2 * part);
      move(values.map((value, index) => from[index]! + eased * (value - from[index]!)));
      frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [values]);
  return shown.length === values.length ? shown : values;
}
