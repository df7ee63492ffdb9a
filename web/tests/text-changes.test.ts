/** Every change between two texts, with values whole and unchanged stretches folded. */

import { expect, test } from "vitest";
import { findChanges } from "../src/parts/text-changes";

const lines = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, at) => `line ${from + at}`);

test("all changes are found, and what is between them is folded", () => {
  const a = [...lines(1, 20), "the rate is 0.92 now", ...lines(21, 40), "end"].join("\n");
  const b = [...lines(1, 20), "the rate is 10.0 now", ...lines(21, 40), "end", "more"].join("\n");
  const changes = findChanges(a, b)!;

  expect(changes.map((change) => change.kind)).toEqual([
    "fold",
    "same",
    "words",
    "same",
    "fold",
    "same",
    "add",
  ]);
  expect(changes[2]).toEqual({
    kind: "words",
    pieces: [
      { mood: "same", text: "the rate is " },
      { mood: "del", text: "0.92" },
      { mood: "add", text: "10.0" },
      { mood: "same", text: " now" },
    ],
  });
});

test("lines with little in common are removed and added", () => {
  expect(findChanges("alpha beta", "gamma")).toEqual([
    { kind: "del", text: "alpha beta" },
    { kind: "add", text: "gamma" },
  ]);
  expect(findChanges("same", "same")).toEqual([{ kind: "same", lines: ["same"] }]);
});
