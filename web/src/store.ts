// A value that components can subscribe to.
import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  /** Hook: returns the value and renders the component again when it changes. */
  use(): T;
}

export function store<T>(initial: T): Store<T> {
  let value = initial;
  const subscribers = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      subscribers.forEach((notify) => notify());
    },
    use() {
      const [, rerender] = useState(0);
      useEffect(() => {
        const notify = () => rerender((count) => count + 1);
        subscribers.add(notify);
        notify(); // the value may have changed between rendering and subscribing
        return () => void subscribers.delete(notify);
      }, []);
      return value;
    },
  };
}
