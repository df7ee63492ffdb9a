import { expect, test } from "vitest";
import { parseAnsi } from "../src/parts/ansi";
import { parseCsv } from "../src/parts/csv";
import { fenceDiffs } from "../src/parts/diff-in-prose";
import { guessLanguage, highlight, piecesByLine } from "../src/parts/highlight";
import { imageType } from "../src/parts/image";
import { fenceJson } from "../src/parts/json-in-prose";
import { pathOf } from "../src/parts/json-path";
import {
  diffTone,
  ExactNumber,
  isDiff,
  isPythonName,
  kindOf,
  parseJson,
} from "../src/parts/text-kind";

const CODE = 'def f(x):  # note\n    return "a\\"b" + str(1.5)\n';

test("highlighted code is the same text, in pieces", () => {
  const pieces = highlight(CODE, "python");

  expect(pieces.map(([, text]) => text).join("")).toBe(CODE);
  expect(pieces).toContainEqual(["keyword", "def"]);
  expect(pieces).toContainEqual(["comment", "# note"]);
  expect(pieces).toContainEqual(["string", '"a\\"b"']);
  expect(pieces).toContainEqual(["number", "1.5"]);
});

test.each(["python", "ts", "sh", "sql", "json", "html", "yaml", "nosuch"])(
  "%s: unbalanced quotes and brackets lose nothing",
  (language) => {
    const text = "'''\"`{[(<!-- #//*\n\u0000$x @y 1e9 \\";

    expect(
      highlight(text, language)
        .map(([, piece]) => piece)
        .join(""),
    ).toBe(text);
  },
);

test("pieces are broken at line ends", () => {
  expect(
    piecesByLine([
      ["string", "a\nb"],
      ["", "c\n"],
    ]),
  ).toEqual([
    [["string", "a"]],
    [
      ["string", "b"],
      ["", "c"],
    ],
    [],
  ]);
});

test("the language of code without a name is guessed only if it is clear", () => {
  expect(guessLanguage(CODE)).toBe("py");
  expect(guessLanguage('{"a": 1}')).toBe("json");
  expect(guessLanguage("SELECT 1")).toBe("sql");
  expect(guessLanguage("a plain sentence")).toBe("");
});

test("terminal colours become classes, other sequences disappear", () => {
  const pieces = parseAnsi("\u001b[1;31mred\u001b[0m plain\u001b[2K\u001b[38;5;46mgreen");

  expect(pieces).toEqual([
    { text: "red", classes: ["bold", "fg-1"] },
    { text: " plain", classes: [] },
    { text: "green", classes: ["fg-2"] },
  ]);
});

test("texts are distinguished by their form", () => {
  expect(kindOf('[{"a": 1}]')).toBe("json");
  expect(kindOf("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b")).toBe("diff");
  expect(kindOf("\u001b[32mok\u001b[0m")).toBe("ansi");
  expect(kindOf("<!DOCTYPE html><p>hi")).toBe("html");
  expect(kindOf("12")).toBe("text");
  expect(isDiff("The patch:\n--- a/x\n+++ b/x")).toBe(false);
});

test("lines of a diff have tones", () => {
  expect(["+++ b/x", "+b", "-a", "@@ -1 +1 @@", " same"].map(diffTone)).toEqual([
    "file",
    "add",
    "del",
    "hunk",
    "",
  ]);
});

test("long integers in JSON stay exact", () => {
  const value = parseJson('{"id": 12345678901234567890}') as { id: unknown };

  expect(value.id).toBeInstanceOf(ExactNumber);
  expect((value.id as ExactNumber).source).toBe("12345678901234567890");
});

test("paths are those that `vestige body --path` reads", () => {
  expect(pathOf(pathOf("$", "messages"), 0)).toBe("$.messages[0]");
  expect(pathOf("$", "odd key")).toBe('$["odd key"]');
});

test("cells of CSV may contain separators, quotes and line breaks", () => {
  expect(parseCsv('a,b\r\n"x, ""y""","1\n2"\n\n', ",")).toEqual([
    ["a", "b"],
    ['x, "y"', "1\n2"],
  ]);
});

test("pictures are known by their bytes; SVG is not one", () => {
  expect(imageType(Uint8Array.of(0x89, 0x50, 0x4e, 0x47))).toBe("image/png");
  expect(imageType(new TextEncoder().encode("<svg onload=alert(1)>"))).toBeNull();
});

test("names of Python are not emphasis", () => {
  expect(["__init__", "__bold text__", "**init**"].map(isPythonName)).toEqual([true, false, false]);
});

test("a diff between sentences becomes code, so that its lines are no list", () => {
  const diff = [
    "diff --git a/x.py b/x.py",
    "--- a/x.py",
    "+++ b/x.py",
    "@@ -1,3 +1,3 @@",
    " def f():",
    "-    return 1",
    "+    return 2",
    "",
  ].join("\n");
  const list = "- one\n- two\n+ three";
  expect(fenceDiffs(`The patch:\n${diff}\n${list}`)).toBe(
    `The patch:\n\`\`\`diff\n${diff}\n\`\`\`\n${list}`,
  );
  for (const text of [list, `\`\`\`\n${diff}\n\`\`\``, "--- a\n+++ b", "see @@ -1,2 +1,2 @@"])
    expect(fenceDiffs(text)).toBe(text);
});

test("JSON between sentences becomes code, as it is; anything else stays", () => {
  const json = '{\n  "a_b_c": [\n    1\n  ]\n}';
  expect(fenceJson(`Plan:\n${json}\nDone.`)).toBe(`Plan:\n\`\`\`json\n${json}\n\`\`\`\nDone.`);
  for (const text of [
    "Plan:\n{\n  not json\n}\n",
    `\`\`\`\n${json}\n\`\`\``,
    "a {b} [c]\n{",
    '{"one": "line"}',
    "[\n".repeat(3_000),
  ])
    expect(fenceJson(text)).toBe(text);
});
