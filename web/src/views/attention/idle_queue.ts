// A queue of tasks that run a few per frame, so that the page stays responsive.

const queue = new Set<() => void>();
const BUDGET = 10; // milliseconds per frame

/** Schedules a task; the returned function cancels it. */
export function runWhenIdle(task: () => void): () => void {
  if (!queue.size) requestAnimationFrame(work);
  queue.add(task);
  return () => void queue.delete(task);
}

function work(): void {
  const end = performance.now() + BUDGET;
  for (const task of queue) {
    queue.delete(task);
    task();
    if (performance.now() > end) break;
  }
  if (queue.size) requestAnimationFrame(work);
}
