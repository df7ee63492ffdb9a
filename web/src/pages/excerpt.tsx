/** A match of a search with the text around it. */

import { visible } from "../parts/format";
import type { Hit } from "../types";

interface Props {
  hit: Hit;
  /** Characters before the match; null: all. */
  beforeMax: number | null;
}

export function Excerpt({ hit, beforeMax }: Props) {
  const before = unescaped(hit.before);
  return (
    <>
      {beforeMax === null ? before : before.slice(-beforeMax)}
      <mark>{visible(hit.match)}</mark>
      {unescaped(hit.after)}
    </>
  );
}

/** Text of a JSON body as it reads: line breaks and quotes without their escapes. */
const unescaped = (text: string): string =>
  visible(text.replace(/\\+[nrt]/g, " ").replace(/\\+(["'/])/g, "$1"));
