import { expect, test } from "vitest";
import { findWords } from "../src/parts/find-words";

const found = (text: string, words: string): string[] =>
  findWords(text, words).map(([from, to]) => text.slice(from, to));

test.each([
  ["one word is found anywhere", "prorated, Rate", "rate", ["rate", "Rate"]],
  ["a quoted phrase is found as it is", "rate limit, limit rate", '"rate limit"', ["rate limit"]],
  [
    "several words are near each other, in any order",
    "the limit of the rate",
    "rate limit",
    ["limit", "rate"],
  ],
  [
    "words that are one phrase are marked as one",
    "a rate limit, limits of rates",
    "rate limit",
    ["rate limit"],
  ],
  ["a word begins a word", "prorated limit", "rate limit", []],
  [
    "a word begins at a capital inside a name",
    "litellm.RateLimitError",
    "rate limit",
    ["Rate", "Limit"],
  ],
  [
    "a word begins after an escaped line break",
    String.raw`x\nrate or limit`,
    "limit rate",
    ["rate", "limit"],
  ],
  ["words that are far apart do not match", `rate ${"x ".repeat(150)} limit`, "rate limit", []],
  [
    "a frequent word is marked only beside the others",
    "to be or not to_json",
    "to_json not",
    ["not", "to_json"],
  ],
  ["nothing is searched", "a text", "  ", []],
])("%s", (_title, text, words, expected) => {
  expect(found(text, words)).toEqual(expected);
});
