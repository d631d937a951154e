// Work that can wait: a little in each frame, so that the page answers meanwhile.

const queue = new Set<() => void>();
const FRAME = 10; // milliseconds

/** Do a task soon; what this returns takes it back. */
export function later(task: () => void): () => void {
  if (!queue.size) requestAnimationFrame(work);
  queue.add(task);
  return () => void queue.delete(task);
}

function work(): void {
  const end = performance.now() + FRAME;
  for (const task of queue) {
    queue.delete(task);
    task();
    if (performance.now() > end) break;
  }
  if (queue.size) requestAnimationFrame(work);
}
