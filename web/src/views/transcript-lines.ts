/** What a transcript shows of each item: all of it, one line, or nothing. Pure. */

import { oneLine } from "../parts/format";
import { withoutRepeats } from "../parts/shortened-text";
import type { CallItem, Item } from "../types";

/** Roles of a message that a person or a program sent. */
const ASKING = new Set(["user", "input", "human"]);
const SAME_TASK = 200;

/** The message with the task of the run, which is never folded. */
export function findTask(items: readonly Item[], task: string): Item | undefined {
  const beginning = task.trim().slice(0, SAME_TASK);
  const [head] = items;
  if (head?.cursor === "task") return head;
  const asking = items.filter((item) => item.kind === "message" && ASKING.has(item.role));
  return (
    asking.find(
      (item) => item.kind === "message" && beginning && item.text.text.includes(beginning),
    ) ?? asking[0]
  );
}

/** True if *Answers only* shows the item: answers, tool calls, errors, and what was requested. */
export function isInAnswers(item: Item): boolean {
  if (item.kind === "message") return ASKING.has(item.role) && item.part === "text";
  if (item.kind === "step") return item.status !== "ok";
  if (item.kind === "log") return item.level === "error";
  return item.kind !== "state";
}

/** True if an item can be shown as one line. */
export function canFold(item: Item): boolean {
  if (item.kind === "tool" || item.kind === "state") return true;
  if (item.kind === "message") return item.part === "text";
  return item.kind === "log" && (item.text.text.length > LINE || item.label !== "");
}

const LINE = 160;

/** The item in one line. */
export function lineOf(item: Item): string {
  switch (item.kind) {
    case "tool":
      return oneLine(item.line.replace(" -> ", " → "), 2 * LINE);
    case "message":
      return oneLine(withoutRepeats(item.text).trim(), LINE);
    case "log":
      return oneLine(item.text.text, LINE);
    case "state":
      return oneLine(`${item.name} ${item.text?.text ?? ""}`, LINE);
    default:
      return "";
  }
}

/** The headline of a step; empty if its answer begins with it. */
export function headlineOf(item: CallItem): string {
  const [thought = ""] = item.headline.split(" | ");
  const begin = plain(thought.replace(/…$/, ""));
  const answer = plain(item.text?.text.slice(0, 1_000) ?? "");
  return !begin || answer.includes(begin.slice(0, 60)) ? "" : oneLine(thought, LINE);
}

const plain = (text: string): string => text.replace(/[\s#*`_>]+/g, " ").trim();
