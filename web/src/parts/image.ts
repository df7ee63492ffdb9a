/** Pictures of a trace as `data:` URLs, judged by their first bytes and never by a name. */

import type { Body } from "../bodies";

const SIGNATURES: readonly (readonly [string, readonly number[]])[] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
];

/** SVG is not among them: it is a document, not a picture. */
export function imageType(bytes: Uint8Array): string | null {
  const found = SIGNATURES.find(([, head]) => head.every((byte, at) => bytes[at] === byte));
  if (found) return found[0];
  const text = String.fromCharCode(...bytes.subarray(0, 12));
  return text.startsWith("RIFF") && text.endsWith("WEBP") ? "image/webp" : null;
}

/** A `data:` URL if the body is a complete picture. */
export function imageOf(body: Pick<Body, "bytes" | "size_bytes">): string | null {
  const type = imageType(body.bytes);
  if (type === null || body.bytes.length < body.size_bytes) return null;
  let binary = "";
  for (let at = 0; at < body.bytes.length; at += 8_192) {
    binary += String.fromCharCode(...body.bytes.subarray(at, at + 8_192));
  }
  return `data:${type};base64,${btoa(binary)}`;
}
