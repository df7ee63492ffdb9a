/** JSON that a text shows between its sentences, without a fence around it. Pure. */

/** Lines that are looked at for the ends of values: a text may begin many that never end. */
const LOOKED_MAX = 50_000;
const FENCE = /^\s{0,3}(?:```|~~~)/;

/** Put fences around objects and lists of several lines, so that they are shown as code. */
export function fenceJson(text: string): string {
  if (!/^ {0,3}[[{]\s*$/m.test(text)) return text;
  const lines = text.split("\n");
  const out: string[] = [];
  let fenced = false;
  let left = LOOKED_MAX;
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!;
    if (FENCE.test(line)) fenced = !fenced;
    const isBegin = !fenced && left > 0 && /^ {0,3}[[{]\s*$/.test(line);
    const { end, isJson } = isBegin ? endOfJson(lines, at, left) : { end: at, isJson: false };
    left -= end - at;
    if (!isJson) {
      out.push(line);
      continue;
    }
    out.push("```json", ...lines.slice(at, end + 1), "```");
    at = end;
  }
  return out.join("\n");
}

/** The line with which a value ends that begins with a line, or the last one that was looked at. */
function endOfJson(lines: string[], begin: number, most: number): { end: number; isJson: boolean } {
  const indent = /^ */.exec(lines[begin]!)![0];
  const closing = lines[begin]!.trim() === "{" ? "}" : "]";
  const last = Math.min(lines.length - 1, begin + most);
  let end = begin;
  // The brackets of a value are in the same column.
  while (end < last && lines[end]!.trimEnd() !== `${indent}${closing}`) end++;
  try {
    JSON.parse(lines.slice(begin, end + 1).join("\n"));
    return { end, isJson: end > begin };
  } catch {
    return { end, isJson: false };
  }
}
