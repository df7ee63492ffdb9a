/** Lines of a text with their numbers; long lines are broken into pieces. */

import { findWords } from "./find-words";

const PIECE = 2_000;

export interface CodeLine {
  /** Null: it goes on the line before. */
  number: number | null;
  text: string;
  mood?: "add" | "del" | undefined;
}

export function linesOf(text: string, first = 1): CodeLine[] {
  const lines: CodeLine[] = [];
  text.split("\n").forEach((line, at) => {
    for (let start = 0; start === 0 || start < line.length; start += PIECE) {
      lines.push({ number: start ? null : first + at, text: line.slice(start, start + PIECE) });
    }
  });
  return lines;
}

/** The first line with the words that are searched for; null if there is none. */
export function findLine(lines: CodeLine[], words: string): number | null {
  if (!words.trim()) return null;
  // Quotes in a line of JSON are escaped.
  const found = lines.findIndex(
    ({ text }) =>
      findWords(text, words).length > 0 || findWords(text.replaceAll('\\"', '"'), words).length > 0,
  );
  return found < 0 ? null : found;
}
