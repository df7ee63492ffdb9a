/**
 * Where searched words are in a text: as one phrase, else near each other, in any order, each at the
 * beginning of a word, as the server searches them. A quoted phrase is one word. Pure.
 */

/** Characters within which words are near each other (query/search/grep.py). */
const NEAR = 200;
const RANGES_MAX = 500;

export type TextRange = readonly [from: number, to: number];

/** The words and quoted phrases of a search, in lower case. */
export function splitWords(words: string): string[] {
  const found = [...words.toLowerCase().matchAll(/"([^"]+)"|([^\s"]+)/g)];
  return [...new Set(found.map((match) => (match[1] ?? match[2])!))];
}

export function findWords(text: string, words: string): TextRange[] {
  const needles = splitWords(words);
  const [first, ...others] = needles.sort((one, other) => other.length - one.length);
  if (!first) return [];
  const lower = text.toLowerCase();
  const phrase = others.length ? words.trim().toLowerCase() : first;
  const exact = placesOf(lower, phrase);
  if (exact.length || !others.length) return exact.map((at) => [at, at + phrase.length]);
  if (!others.every((word) => lower.includes(word))) return [];
  const ranges = new Map<number, TextRange>();
  for (const at of placesOf(lower, first)) {
    if (!beginsWord(text, at, first)) continue;
    const near = others.map((word) => nearest(text, lower, word, at));
    if (near.some((place) => place === null)) continue;
    ranges.set(at, [at, at + first.length]);
    for (const [index, place] of near.entries())
      ranges.set(place!, [place!, place! + others[index]!.length]);
    if (ranges.size >= RANGES_MAX) break;
  }
  return [...ranges.values()].sort((one, other) => one[0] - other[0]);
}

function placesOf(lower: string, word: string): number[] {
  const places: number[] = [];
  for (
    let at = lower.indexOf(word);
    at >= 0 && places.length < RANGES_MAX;
    at = lower.indexOf(word, at + word.length)
  )
    places.push(at);
  return places;
}

/** The place of a word that is nearest to another place, if it is near. */
function nearest(text: string, lower: string, word: string, at: number): number | null {
  const begin = Math.max(0, at - NEAR);
  const places = placesOf(lower.slice(begin, at + NEAR), word)
    .map((place) => begin + place)
    .filter((place) => beginsWord(text, place, word));
  places.sort((one, other) => Math.abs(one - at) - Math.abs(other - at));
  return places[0] ?? null;
}

/** A word also begins after an escaped line break, and at a capital inside a name. */
function beginsWord(text: string, at: number, word: string): boolean {
  if (at === 0 || !/^[a-z0-9]/.test(word) || !/[0-9A-Za-z]/.test(text[at - 1]!)) return true;
  if (/\\[nrt]$/.test(text.slice(Math.max(0, at - 2), at))) return true;
  return /[0-9a-z][A-Z]/.test(text.slice(at - 1, at + 1));
}
