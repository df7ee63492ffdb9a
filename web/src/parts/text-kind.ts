/** What a text of a trace is, judged by its own form: JSON, a unified diff, coloured output, HTML. */

import { hasColours } from "./ansi";

export type TextKind = "json" | "diff" | "ansi" | "html" | "text";

/** Longer texts are shown as they are. */
const PARSE_MAX = 2_000_000;

export function kindOf(text: string): TextKind {
  if (parseJson(text) !== undefined) return "json";
  if (isDiff(text)) return "diff";
  if (hasColours(text)) return "ansi";
  if (/^\s*(?:<!doctype html|<html[\s>])/i.test(text)) return "html";
  return "text";
}

/** Parse an object or a list; undefined for anything else, plain numbers and words included. */
export function parseJson(text: string): object | undefined {
  if (text.length > PARSE_MAX || !/^\s*[[{]/.test(text)) return undefined;
  try {
    const value: unknown = JSON.parse(text, exactNumbers);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Integers that a JavaScript number would round stay exact, as text without quotes. */
export class ExactNumber {
  constructor(readonly source: string) {}
}

function exactNumbers(_key: string, value: unknown, context?: { source?: string }): unknown {
  const rounded = typeof value === "number" && !Number.isSafeInteger(value);
  const source = context?.source ?? "";
  return rounded && /^-?\d+$/.test(source) ? new ExactNumber(source) : value;
}

/** A header of two files, or a hunk, at the beginning: prose about a diff is prose. */
export function isDiff(text: string): boolean {
  const head = text.slice(0, 20_000).trimStart();
  return (
    /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/.test(head) ||
    (/^(?:diff |--- \S|Index: )/.test(head) && /^\+\+\+ \S/m.test(head))
  );
}

export type DiffTone = "add" | "del" | "hunk" | "file" | "";

/** The tone of one line of a unified diff. */
export function diffTone(line: string): DiffTone {
  if (/^(?:diff |index |--- |\+\+\+ )/.test(line)) return "file";
  if (line.startsWith("@@")) return "hunk";
  if (line.startsWith("+")) return "add";
  if (line.startsWith("-")) return "del";
  return "";
}

/** Return true for a name such as `__init__`, which Markdown would take for emphasis. */
export const isPythonName = (text: string): boolean => /^__\w+__$/.test(text);
