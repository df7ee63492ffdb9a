import { expect, test } from "vitest";
import { findLine, linesOf } from "../src/parts/code-lines";
import { pretty } from "../src/parts/pretty-json";

test("JSON is formatted by white space only: long numbers and duplicate keys survive", () => {
  const text = '{"id":12345678901234567890,"a":1,"a":[],"s":"x, {y}"}';

  expect(pretty(text)).toBe(
    '{\n  "id": 12345678901234567890,\n  "a": 1,\n  "a": [],\n  "s": "x, {y}"\n}',
  );
  expect(pretty("not { json")).toBe("not { json");
});

test("a long line is broken into pieces that share one number", () => {
  const lines = linesOf(`${"x".repeat(4_500)}\nend`);

  expect(lines.map((line) => line.number)).toEqual([1, null, null, 2]);
});

test("a searched text is found in a line, also where JSON escapes it", () => {
  const lines = linesOf('first\n"text": "say \\"Hello\\" twice"\nlast hello');

  expect(findLine(lines, "LAST")).toBe(2);
  expect(findLine(lines, 'say "hello"')).toBe(1);
  expect(findLine(lines, "absent")).toBe(null);
  expect(findLine(lines, " ")).toBe(null);
});
