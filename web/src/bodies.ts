/** Bodies as bytes: an answer holds a page of one, as text or base64. */

import type { BodyData } from "./types";
import { ask } from "./use-query";

export type Which = "input" | "output";

export interface Body {
  /** The decoded text as far as it was read; invalid UTF-8 becomes replacement characters. */
  text: string;
  /** False if it contains binary data. */
  isText: boolean;
  bytes: Uint8Array;
  size_bytes: number;
  /** Why some of the body itself is missing. */
  note: string | null;
}

/** Larger bodies are read up to this size. */
export const READ_MAX = 8 * 1024 * 1024;

export async function readBody(span: string, which: Which, most = READ_MAX): Promise<Body> {
  const parts: Uint8Array[] = [];
  let read = 0;
  let page: BodyData;
  let from: number | null = 0;
  do {
    page = await ask<BodyData>("body", {
      id: span,
      [which === "input" ? "in" : "out"]: true,
      bytes: from ? `${from}:` : null,
    });
    const part: Uint8Array =
      page.encoding === "text" ? new TextEncoder().encode(page.text) : fromBase64(page.text);
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
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** 16 bytes a line, as a hex dump has them. */
export function hexLines(bytes: Uint8Array, most = 65_536): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, most); at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const seen = part
      .map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : "."))
      .join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${seen}`);
  }
  return lines.join("\n");
}
