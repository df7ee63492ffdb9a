/** Transcripts in short: one line per tool call, no repeats, texts cut where they can be. */

import { expect, test } from "vitest";
import { beginning, withoutRepeats } from "../src/parts/shortened-text";
import type { Item } from "../src/types";
import { canFold, findTask, headlineOf, isInAnswers, lineOf } from "../src/views/transcript-lines";

const item = (facts: object): Item =>
  ({ cursor: "s1.0", span: "r1.s1", step: 1, at_us: 0, depth: 0, ...facts }) as Item;
const text = (value: string) => ({ text: value, size_bytes: value.length, cut: false, body: null });
const tool = item({ kind: "tool", line: "search(q=refunds) -> three\n pages", name: "search" });
const user = item({ kind: "message", role: "user", part: "text", text: text("Count to ten") });
const system = item({ kind: "message", role: "system", part: "text", text: text("Be brief.") });
const call = (headline: string, answer: string) =>
  item({ kind: "call", headline, text: text(answer) }) as never;

test("a tool call and its result are one line", () => {
  expect(lineOf(tool)).toBe("search(q=refunds) → three pages");
  expect(canFold(tool)).toBe(true);
  expect(canFold(call("", "Yes."))).toBe(false);
});

test("the task is the message that has its text, else the first one of the user", () => {
  const other = item({ kind: "message", role: "user", part: "text", text: text("Hello") });

  expect(findTask([system, other, user], "Count to ten")).toBe(user);
  expect(findTask([system, other, user], "Something else")).toBe(other);
  expect(findTask([system], "Count to ten")).toBeUndefined();
});

test("answers only leaves out what the model was sent by the program", () => {
  expect([system, user, tool, call("", "Yes.")].map(isInAnswers)).toEqual([
    false,
    true,
    true,
    true,
  ]);
  expect(isInAnswers(item({ kind: "log", level: "info", text: text("started") }))).toBe(false);
  expect(isInAnswers(item({ kind: "log", level: "error", text: text("failed") }))).toBe(true);
});

test("a headline that the answer has is not repeated", () => {
  expect(headlineOf(call("I look it up. | search(q=1)", "**Thought:** I look it up. Then"))).toBe(
    "",
  );
  expect(headlineOf(call("search the web | search(q=1)", "Done."))).toBe("search the web");
});

test("passages of other steps are references, also behind characters of two units", () => {
  const repeats = [
    { begin: 2, end: 5, step: 3 },
    { begin: 6, end: 8, step: 0 },
  ];

  expect(withoutRepeats({ text: "ab123c45d", repeats })).toBe("ab[as in step 3]c[as in the task]d");
  expect(withoutRepeats({ text: "a😀123c45d", repeats })).toBe(
    "a😀[as in step 3]c[as in the task]d",
  );
});

test("a text is shortened outside of code, or its code is closed", () => {
  const room = { chars: 100, lines: 3 };
  const code = "Look:\n```py\n1\n2\n3\n4\n```\nDone.";

  expect(beginning("one\ntwo", room)).toBeNull();
  expect(beginning("1\n2\n3\n4", room)).toBe("1\n2\n3 …");
  expect(beginning(code, room)).toBe("Look:\n```py\n1\n…\n```");
  expect(beginning(code, { ...room, foldsCode: true })).toBeNull();
});
