// How wide an element is, as a hook.
import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function useWidth<E extends HTMLElement>(): [RefObject<E | null>, number] {
  const element = useRef<E>(null);
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    const one = element.current;
    if (!one) return;
    const measure = () => set(Math.floor(one.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(one);
    measure();
    return () => observer.disconnect();
  }, []);
  return [element, width];
}
