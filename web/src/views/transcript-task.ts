/** The task at the head of a transcript. Pure. */

import type { Item } from "../types";

/** Items in which a task is looked for, and how much of it has to be in one of them. */
const HEAD_ITEMS = 20;
const SAME_TASK = 200;

/** Put the task of the run first, unless one of the first messages has it. */
export function withTask(items: readonly Item[], task: string): Item[] {
  const beginning = task.trim().slice(0, SAME_TASK);
  const [first] = items;
  const isShown = items
    .slice(0, HEAD_ITEMS)
    .some((item) => item.kind === "message" && item.text.text.includes(beginning));
  if (!first || !beginning || isShown) return [...items];
  const text = { text: task, size_bytes: task.length, cut: false, body: null };
  const head: Item = {
    kind: "message",
    role: "user",
    part: "text",
    text,
    span: null,
    at_us: first.at_us,
    depth: 0,
    cursor: "task",
  };
  return [head, ...items];
}
