/** Matches of a full-text search, one for each text. Pure. */

import type { Hit } from "../types";

export interface Row {
  hit: Hit;
  /** Further spans of the run with the same text: an error is recorded on the parents, too. */
  others: number;
}

/** Characters around a match that decide whether another match is the same text. */
const SAME_TEXT = 40;

/** Return one row for matches of a run with the same text around them. */
export function mergeParents(hits: readonly Hit[]): Row[] {
  const rows = new Map<string, Row>();
  for (const hit of hits) {
    const text = hit.before.slice(-SAME_TEXT) + hit.match + hit.after.slice(0, SAME_TEXT / 2);
    const key = `${hit.short_id.split(".")[0]} ${hit.part} ${text}`;
    const found = hit.part === "attrs" ? rows.get(key) : undefined;
    if (found) found.others++;
    else rows.set(hit.part === "attrs" ? key : `${key} ${hit.short_id}`, { hit, others: 0 });
  }
  return [...rows.values()];
}
