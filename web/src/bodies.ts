/** Bodies as bytes: an answer holds a page of one, as text or base64. */

import { ask } from "./answers";
import type { BodyData } from "./types";

export type Which = "input" | "output";

export interface Body {
  /** As far as it was read, decoded; what is no UTF-8 shows as replacement signs. */
  text: string;
  /** False: some of it is no text. */
  isText: boolean;
  bytes: Uint8Array;
  size_bytes: number;
  /** Why some of the body itself is missing. */
  note: string | null;
}

/** Larger ones are read this far, and say so. */
export const READ_MAX = 8 * 1024 * 1024;

export async function readBody(span: string, which: Which, most = READ_MAX): Promise<Body> {
  const parts: Uint8Array[] = [];
  let read = 0;
  let page: BodyData;
  let from: number | null = 0;
  do {
    page = await ask<BodyData>("body", { id: span, [which === "input" ? "in" : "out"]: true, bytes: from ? `${from}:` : null });
    const part: Uint8Array = page.encoding === "text" ? new TextEncoder().encode(page.text) : fromBase64(page.text);
    parts.push(part);
    read += part.length;
    from = page.next;
  } while (from !== null && read < most);
  const bytes = joined(parts, read);
  let text: string;
  let isText = true;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: from !== null });
  } catch {
    text = new TextDecoder().decode(bytes);
    isText = false;
  }
  return { text, isText, bytes, size_bytes: page.size_bytes, note: page.note };
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}

function joined(parts: Uint8Array[], size: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** 16 bytes a line, as a hex dump has them. */
export function hexLines(bytes: Uint8Array, most = 65_536): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, most); at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const seen = part.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${seen}`);
  }
  return lines.join("\n");
}
