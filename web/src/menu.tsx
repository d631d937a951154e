// A button that opens a panel.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { currentRoute } from "./route";

interface MenuProps {
  readonly label: ComponentChildren;
  readonly class?: string;
  /** Whether it contains the current view. */
  readonly current?: boolean;
  readonly children: ComponentChildren;
}

/** A button that opens a panel; it closes when something else is pressed or the view changes. */
export function Menu({ label, class: className = "", current = false, children }: MenuProps) {
  const element = useRef<HTMLDetailsElement>(null);
  const { view } = currentRoute.use();
  const close = () => {
    if (element.current) element.current.open = false;
  };
  useEffect(close, [view]);
  useEffect(() => {
    const onPress = (event: Event) => element.current?.contains(event.target as Node) || close();
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !element.current?.open) return;
      close();
      element.current.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", onPress);
    document.addEventListener("focusin", onPress);
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("pointerdown", onPress);
      document.removeEventListener("focusin", onPress);
      document.removeEventListener("keydown", onKey);
    };
  }, []);
  return (
    <details ref={element} class={`menu ${className}`}>
      <summary {...(current && { "data-current": true })}>{label}</summary>
      <div class="panel">{children}</div>
    </details>
  );
}
