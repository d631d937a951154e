// A value that components can watch. Knows nothing of what it holds.
import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  /** The value, as a hook: the component is drawn again when it changes. */
  use(): T;
}

export function store<T>(start: T): Store<T> {
  let value = start;
  const watchers = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      watchers.forEach((watcher) => watcher());
    },
    use() {
      const [, redraw] = useState(0);
      useEffect(() => {
        const watcher = () => redraw((count) => count + 1);
        watchers.add(watcher);
        watcher(); // what changed between drawing and watching
        return () => void watchers.delete(watcher);
      }, []);
      return value;
    },
  };
}
