/** The changes between two texts: lines, words inside of changed lines, and unchanged stretches. Pure. */

import { diffArrays } from "diff";

/** A piece of a line: removed, added, or on both sides. */
export type Piece = { mood: "same" | "del" | "add"; text: string };
export type Change =
  | { kind: "same"; lines: string[] }
  /** A stretch that is shown folded. */
  | { kind: "fold"; lines: string[] }
  | { kind: "del" | "add"; text: string }
  /** A line of each side that have most words in common. */
  | { kind: "words"; pieces: Piece[] };

/** Unchanged lines around a change, and the least number that is folded. */
const CONTEXT = 2;
const FOLD_MIN = 3;
const COMPARE_MS = 1_500;
/** Share of common characters from which on two lines are one that was changed. */
const SIMILAR = 0.4;
const WORDS_CHARS_MAX = 4_000;
/** A date, a number, a word, white space, or one other character: values stay whole. */
const WORD =
  /\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?|\d+(?:[.,:]\d+)*|[\p{L}\p{M}_]+|\s+|./gsu;

/** All changes from one text to the other; null if they take too long to find. */
export function findChanges(a: string, b: string): Change[] | null {
  const [before, after] = withSameBreaks(a, b);
  const parts = diffArrays(before.split("\n"), after.split("\n"), { timeout: COMPARE_MS });
  if (!parts) return null;
  const changes: Change[] = [];
  for (let at = 0; at < parts.length; at++) {
    const part = parts[at]!;
    const next = parts[at + 1];
    if (!part.added && !part.removed) {
      changes.push(...fold(part.value, at === 0, at === parts.length - 1));
    } else if (part.removed && next?.added) {
      changes.push(...compareLines(part.value, next.value));
      at++;
    } else {
      const kind = part.added ? "add" : "del";
      changes.push(...part.value.map((text): Change => ({ kind, text })));
    }
  }
  return changes;
}

/** CR LF is a line break like any other, unless it is all that differs. */
function withSameBreaks(a: string, b: string): [string, string] {
  const [before, after] = [a.replaceAll("\r\n", "\n"), b.replaceAll("\r\n", "\n")];
  return before === after ? [a, b] : [before, after];
}

function fold(lines: string[], isFirst: boolean, isLast: boolean): Change[] {
  const before = isFirst ? 0 : CONTEXT;
  const after = isLast ? 0 : CONTEXT;
  if (lines.length < before + after + FOLD_MIN) return [{ kind: "same", lines }];
  const end = lines.length - after;
  const parts: Change[] = [
    { kind: "same", lines: lines.slice(0, before) },
    { kind: "fold", lines: lines.slice(before, end) },
    { kind: "same", lines: lines.slice(end) },
  ];
  return parts.filter(
    (part) => part.kind === "fold" || (part.kind === "same" && part.lines.length),
  );
}

/** Pair the lines of a changed stretch in order, as long as they are similar. */
function compareLines(removed: string[], added: string[]): Change[] {
  const changes: Change[] = [];
  const paired = Math.min(removed.length, added.length);
  let at = 0;
  for (; at < paired; at++) {
    const pieces = compareWords(removed[at]!, added[at]!);
    if (!pieces) break;
    changes.push({ kind: "words", pieces });
  }
  changes.push(...removed.slice(at).map((text): Change => ({ kind: "del", text })));
  changes.push(...added.slice(at).map((text): Change => ({ kind: "add", text })));
  return changes;
}

/** The words that differ; null if the lines have little in common. */
function compareWords(a: string, b: string): Piece[] | null {
  if (a.length + b.length > WORDS_CHARS_MAX) return null;
  const parts = diffArrays(a.match(WORD) ?? [], b.match(WORD) ?? [], { timeout: COMPARE_MS });
  if (!parts) return null;
  const pieces = parts.map(
    (part): Piece => ({
      mood: part.added ? "add" : part.removed ? "del" : "same",
      text: part.value.join(""),
    }),
  );
  const common = pieces.reduce(
    (sum, piece) => sum + (piece.mood === "same" ? piece.text.length : 0),
    0,
  );
  return common >= SIMILAR * Math.max(a.length, b.length, 1) ? pieces : null;
}
