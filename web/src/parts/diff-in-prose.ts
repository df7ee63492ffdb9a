/** Unified diffs that a text shows between its sentences, without a fence around them. Pure. */

const FENCE = /^\s{0,3}(?:```|~~~)/;
const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;
const HEAD =
  /^(?:diff --git |index [0-9a-f]+\.\.|Index: |old mode |new mode |new file |deleted file |similarity |rename |={20,})/;

/** Put fences around diffs, so that their lines are not taken for lists. */
export function fenceDiffs(text: string): string {
  if (!/^@@ -\d/m.test(text)) return text;
  const lines = text.split("\n");
  const out: string[] = [];
  let fenced = false;
  for (let at = 0; at < lines.length; at++) {
    if (FENCE.test(lines[at]!)) fenced = !fenced;
    const end = fenced ? at : endOfDiff(lines, at);
    if (end === at) {
      out.push(lines[at]!);
      continue;
    }
    out.push("```diff", ...lines.slice(at, end), "```");
    at = end - 1;
  }
  return out.join("\n");
}

/** The line after a diff that begins with a line; the line itself if none does. */
function endOfDiff(lines: readonly string[], begin: number): number {
  let at = begin;
  while (HEAD.test(lines[at] ?? "")) at++;
  if (/^--- \S/.test(lines[at] ?? "") && /^\+\+\+ \S/.test(lines[at + 1] ?? "")) at += 2;
  let end = begin;
  for (let hunk = HUNK.exec(lines[at] ?? ""); hunk; hunk = HUNK.exec(lines[at] ?? "")) {
    end = at = endOfHunk(lines, at, Number(hunk[1] ?? 1), Number(hunk[2] ?? 1));
  }
  // The next file of the same diff.
  const next = end > begin ? endOfDiff(lines, end) : end;
  return Math.max(end, next);
}

function endOfHunk(lines: readonly string[], begin: number, before: number, after: number): number {
  let [removed, added, at] = [before, after, begin + 1];
  while (at < lines.length && (removed > 0 || added > 0)) {
    const line = lines[at]!;
    if (line.startsWith("-")) removed--;
    else if (line.startsWith("+")) added--;
    else if (line.startsWith(" ") || line.trim() === "") {
      removed--;
      added--;
    } else if (!line.startsWith("\\")) break;
    at++;
  }
  return at;
}
