/** The task at the head of a transcript. */

import { expect, test } from "vitest";
import type { Item } from "../src/types";
import { withTask } from "../src/views/transcript-task";

const message = (role: string, text: string): Item => ({
  kind: "message",
  role,
  part: "text",
  text: { text, size_bytes: text.length, cut: false, body: null },
  span: "r1.s1",
  step: 1,
  at_us: 5,
  depth: 0,
  cursor: role,
});

test("a task that no message has comes first", () => {
  const items = withTask([message("system", "Be brief.")], "Count to ten");

  expect(items.map((item) => item.cursor)).toEqual(["task", "system"]);
  expect(items[0]).toMatchObject({ role: "user", at_us: 5, text: { text: "Count to ten" } });
});

test("a task that a message has is not repeated", () => {
  const items = [message("system", "Be brief."), message("user", "New task:\nCount to ten")];

  expect(withTask(items, "Count to ten")).toEqual(items);
  expect(withTask(items, "")).toEqual(items);
  expect(withTask([], "Count to ten")).toEqual([]);
});

test("a task behind a long prompt comes first in a folded transcript", () => {
  const items = [message("user", `${"Plan well. ".repeat(30)}Count to ten`)];

  expect(withTask(items, "Count to ten")).toEqual(items);
  expect(withTask(items, "Count to ten", true).map((item) => item.cursor)).toEqual([
    "task",
    "user",
  ]);
});
