/** JSON laid out for reading, without changing anything but white space. */

/** Deeper levels stay there: a megabyte of brackets must not become a terabyte of blanks. */
const INDENT_MAX = 100;

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
 * Format JSON by changing white space only; other text is returned as it is. Parsing and writing it
 * again would round long numbers, reorder keys and drop duplicate keys.
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
    if (closes ? !opened : opened || before === ",")
      parts.push("\n", "  ".repeat(Math.min(depth, INDENT_MAX)));
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth++;
    before = token;
  }
  return parts.join("");
}
