/** The address of a match: its run at the span, with the words highlighted. */

import { href, tabOfPart } from "../router";
import type { Hit } from "../types";

export function hitAddress(hit: Hit, words: string): string {
  const [run = "", span = ""] = hit.short_id.split(".");
  return href("run", run, { span, tab: tabOfPart(hit.part), find: words });
}
