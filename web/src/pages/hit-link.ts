/** The address of a match: its run at the span, with the words highlighted. */

import { href, tabOfPart } from "../router";
import type { Hit } from "./merge-hits";

/** What to search in the run: the words as a phrase if they are one here, else the word that was found. */
export function findText(words: string, hit: Hit): string {
  const phrase = words.replaceAll('"', "");
  const here = `${hit.match}${hit.after}`.slice(0, phrase.length);
  return here.toLowerCase() === phrase.toLowerCase() ? phrase : hit.match;
}

export function hitAddress(hit: Hit, words: string): string {
  const [run = "", span = ""] = hit.short_id.split(".");
  return href("run", run, { span, tab: tabOfPart(hit.part), find: findText(words, hit) });
}
