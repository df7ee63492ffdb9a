/** The task at the head of a transcript. Pure. */

import type { Item } from "../types";

/** Items in which a task is looked for, and how much of it has to be in one of them. */
const HEAD_ITEMS = 20;
const SAME_TASK = 200;

/** In a folded transcript only the beginning of a message is read. */
const BEGIN = 200;

/**
 * Put the task of the run first, unless one of the first messages has it: if `isFolded`, at its
 * beginning, because the rest of a long prompt is not seen.
 */
export function withTask(items: readonly Item[], task: string, isFolded = false): Item[] {
  const beginning = task.trim().slice(0, SAME_TASK);
  const [first] = items;
  const isShown = items.slice(0, HEAD_ITEMS).some((item) => {
    const at = item.kind === "message" ? item.text.text.indexOf(beginning) : -1;
    return at >= 0 && (!isFolded || at < BEGIN);
  });
  if (!first || !beginning || isShown) return [...items];
  const text = { text: task, size_bytes: task.length, cut: false, body: null };
  const head: Item = {
    kind: "message",
    role: "user",
    part: "text",
    text,
    span: null,
    step: null,
    at_us: first.at_us,
    depth: 0,
    cursor: "task",
  };
  return [head, ...items];
}
