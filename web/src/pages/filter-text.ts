/** The text of a filter: its words, and the part that is still being typed. Pure. */

const TERM = /-?[a-z]+(?::|[<>]=?|=)(?:"[^"]*"|\S+)|"[^"]*"|\S+/g;
const isText = (term: string): boolean =>
  !/^-?[a-z]+(?::|[<>]=?|=)/.test(term) &&
  !term.startsWith("-") &&
  !/^#\p{L}/u.test(term) &&
  !/^r\d+(?:\.s\d+)?$/i.test(term);

/** Return the words and quoted phrases of a filter: the text to search for. */
export function freeWords(filter: string): string {
  return (filter.match(TERM) ?? []).filter(isText).join(" ");
}

/** Return the filter with its words as one quoted phrase. */
export function asPhrase(filter: string): string {
  const terms = filter.match(TERM) ?? [];
  const words = terms.filter((term) => isText(term) && !term.startsWith('"'));
  const others = terms.filter((term) => !words.includes(term));
  return [...others, `"${words.join(" ")}"`].join(" ");
}

/** One term as the server reads it: `-`, a key with its operator, and a value. */
const TYPED = /\s*(-?)((?:[A-Za-z_]+(?::|>=|<=|>|<|=))?)("(?:\\.|[^"\\])*"|[^\s"]\S*|"[\s\S]*)?/y;
/** Values that take several keys to type; a prefix of one is not sent. */
const CHOICES: Record<string, readonly string[]> = {
  is: [
    ...["failed", "failure", "ok", "running", "error", "cancelled", "canceled", "timeout", "live"],
    ...["interrupted", "unknown", "pinned", "succeeded", "success", "passed", "crashed", "killed"],
    "open",
  ],
  has: ["finding", "conversation", "error", "cost", "note"],
};

function isOpen(sign: string, head: string, value: string): boolean {
  if (!value) return sign !== "" || head !== "";
  if (value === '""' || value === "#") return true;
  if (value.startsWith('"')) return !/^"(?:\\.|[^"\\])*"$/s.test(value);
  if (head && /^\d*\.$/.test(value)) return true; // 0. becomes 0.5
  const choices = CHOICES[head.slice(0, -1).toLowerCase()] ?? [];
  const typed = value.toLowerCase();
  return !choices.includes(typed) && choices.some((choice) => choice.startsWith(typed));
}

/**
 * Split a filter into what can be asked, and the terms that are still being typed: an open quote, a
 * key without a value, the beginning of a state.
 */
export function splitTyped(typed: string): { filter: string; open: string } {
  const complete: string[] = [];
  const open: string[] = [];
  TYPED.lastIndex = 0;
  while (TYPED.lastIndex < typed.length) {
    const found = TYPED.exec(typed);
    if (!found?.[0].trim()) break;
    const [term, sign = "", head = "", value = ""] = found;
    (isOpen(sign, head, value) ? open : complete).push(term.trim());
  }
  return { filter: open.length ? complete.join(" ") : typed, open: open.join(" ") };
}
