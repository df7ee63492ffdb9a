/** Text of any size with line numbers: long lines are broken into pieces, only visible ones exist. */

import { useMemo } from "preact/hooks";
import { visible } from "./format";
import { VirtualList } from "./virtual";

const PIECE = 2_000;
const PLAIN_MAX = 400;
/** Deeper levels stay there: a megabyte of brackets must not become a terabyte of blanks. */
const INDENT_MAX = 100;

export interface CodeLine {
  /** Null: it goes on the line before. */
  number: number | null;
  text: string;
  mood?: "add" | "del" | undefined;
}

export function linesOf(text: string, first = 1): CodeLine[] {
  const lines: CodeLine[] = [];
  text.split("\n").forEach((line, at) => {
    for (let start = 0; start === 0 || start < line.length; start += PIECE) {
      lines.push({ number: start ? null : first + at, text: line.slice(start, start + PIECE) });
    }
  });
  return lines;
}

function Line({ line }: { line: CodeLine }) {
  return (
    <div class={`line ${line.mood ?? ""}`}>
      <span class="n" aria-hidden="true">{line.number ?? (line.mood ? "" : "↳")}</span>
      <span class="t" dir="auto">{visible(line.text) || " "}</span>
    </div>
  );
}

export function CodeLines({ lines, label, class: more = "" }: { lines: CodeLine[]; label: string; class?: string }) {
  if (lines.length <= PLAIN_MAX) {
    return (
      <div class={`code scroll ${more}`} role="region" aria-label={label} tabIndex={0}>
        {lines.map((line, at) => (
          <Line key={at} line={line} />
        ))}
      </div>
    );
  }
  return (
    <VirtualList class={`code ${more || "grow"}`} label={label} count={lines.length} height={18} measured
      row={(at) => <Line line={lines[at]!} />} />
  );
}

export function Code({ text, label, class: more }: { text: string; label: string; class?: string }) {
  const lines = useMemo(() => linesOf(text), [text]);
  return <CodeLines lines={lines} label={label} {...(more ? { class: more } : {})} />;
}

/** A sign, a number, a word, or the begin of a string; blanks between them are passed over. */
const TOKEN = /["{}[\],:]|[^\s{}[\],:"]+/g;

function* tokens(json: string): Generator<string> {
  const next = new RegExp(TOKEN);
  for (let found = next.exec(json); found; found = next.exec(json)) {
    if (found[0] === '"') next.lastIndex = endOfString(json, found.index);
    yield json.slice(found.index, next.lastIndex);
  }
}

/** Behind the quote that ends it. By hand: an expression's stack is too small for megabytes of `\n`. */
function endOfString(json: string, begin: number): number {
  for (let at = json.indexOf('"', begin + 1); at > 0; at = json.indexOf('"', at + 1)) {
    let escapes = 0;
    while (json[at - 1 - escapes] === "\\") escapes++;
    if (escapes % 2 === 0) return at + 1;
  }
  return json.length;
}

/**
 * JSON laid out, or the text as it is when it is none. Only blanks differ: read and written anew,
 * long numbers would be rounded, keys put in another order, and of two equal ones one would be gone.
 */
export function pretty(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const parts: string[] = [];
  let depth = 0;
  let before = "";
  for (const token of tokens(text)) {
    const closes = token === "}" || token === "]";
    const opened = before === "{" || before === "[";
    if (closes) depth--;
    if (closes ? !opened : opened || before === ",") parts.push("\n", "  ".repeat(Math.min(depth, INDENT_MAX)));
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth++;
    before = token;
  }
  return parts.join("");
}
