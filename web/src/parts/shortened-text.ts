/** Texts of a trace made shorter: their beginning, or without what another step shows. Pure. */

import type { Text } from "../types";

interface Room {
  chars: number;
  lines: number;
  /** Blocks of code take no room: each is folded to one line. */
  foldsCode?: boolean;
}

/** A block of code that is open at the end is closed: the mark of its end is not a part of it. */
function ended(text: string): string {
  const fences = text.match(/^```/gm)?.length ?? 0;
  return fences % 2 ? `${text.trimEnd()}\n…\n\`\`\`` : `${text.trimEnd()} …`;
}

/** The beginning of a text; null if all of it fits. */
export function beginning(text: string, { chars, lines, foldsCode = false }: Room): string | null {
  let taken = 0;
  let left = chars;
  let at = 0;
  let isCode = false;
  while (at <= text.length) {
    const newline = text.indexOf("\n", at);
    const end = newline < 0 ? text.length : newline;
    const isFence = foldsCode && text.startsWith("```", at);
    if (!isFence && !isCode) {
      if (taken >= lines || end - at > left) {
        const room = taken < lines ? Math.max(0, left) : 0;
        return ended(text.slice(0, at + room));
      }
      taken++;
      left -= end - at + 1;
    }
    if (isFence) isCode = !isCode;
    at = end + 1;
  }
  return null;
}

/** A text with references in place of the passages that another step shows. */
export function withoutRepeats({ text, repeats }: Pick<Text, "text" | "repeats">): string {
  if (!repeats?.length) return text;
  // Positions count characters; a string of JavaScript counts UTF-16 units.
  const chars = /[\ud800-\udfff]/.test(text) ? Array.from(text) : null;
  const part = (from: number, to?: number): string =>
    chars ? chars.slice(from, to).join("") : text.slice(from, to);
  let at = 0;
  let shown = "";
  for (const { begin, end, step } of repeats) {
    shown += `${part(at, begin)}[as in ${step ? `step ${step}` : "the task"}]`;
    at = end;
  }
  return shown + part(at);
}
