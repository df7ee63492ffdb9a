/**
 * Syntax colours for code of a trace: words, strings, comments and numbers, by rules for a few
 * families of languages. The result is text with classes; joined, it is the input.
 */

export type Tone = "" | "keyword" | "string" | "comment" | "number" | "name" | "key" | "mark";
export type Piece = readonly [Tone, string];

/** Longer texts have no colours: reading them would hold the page up. */
export const HIGHLIGHT_MAX = 200_000;

interface Language {
  rules: readonly (readonly [Tone, string])[];
  keywords: ReadonlySet<string>;
  /** Keywords in any case. */
  ignoreCase?: boolean;
}

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));

const DOUBLE = '"(?:\\\\[\\s\\S]|[^"\\\\\\n])*"?';
const SINGLE = "'(?:\\\\[\\s\\S]|[^'\\\\\\n])*'?";
const NUMBER = "\\b(?:0[xX][\\da-fA-F]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";

const PYTHON: Language = {
  rules: [
    ["comment", "#[^\\n]*"],
    ["string", "(?:\\b[rbfuRBFU]{1,2})?(?:\"\"\"[\\s\\S]*?(?:\"\"\"|$)|'''[\\s\\S]*?(?:'''|$))"],
    ["string", `(?:\\b[rbfuRBFU]{1,2})?(?:${DOUBLE}|${SINGLE})`],
    ["mark", "@[\\w.]+"],
    ["number", NUMBER],
  ],
  keywords: words(
    "False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield self",
  ),
};

const SCRIPT: Language = {
  rules: [
    ["comment", "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)"],
    ["string", `${DOUBLE}|${SINGLE}|\`(?:\\\\[\\s\\S]|[^\`\\\\])*\`?`],
    ["mark", "@\\w+"],
    ["number", NUMBER],
  ],
  keywords: words(
    "abstract async await bool break case catch char class const continue default defer delete do double else enum export extends false final finally float fn for from func function go if impl implements import in instanceof int interface let long match mut namespace new nil null of override package private protected pub public return static string struct super switch this throw throws trait true try type typeof undefined union unsafe use var void while with yield",
  ),
};

const SHELL: Language = {
  rules: [
    ["comment", "(?<=^|[\\s;])#[^\\n]*"],
    ["string", `"(?:\\\\[\\s\\S]|[^"\\\\])*"?|'[^']*'?`],
    ["name", "\\$(?:\\{[^}\\n]*\\}|\\w+|[?!@#*$])"],
    ["key", "(?<=\\s)--?[A-Za-z][\\w-]*"],
    ["number", NUMBER],
  ],
  keywords: words(
    "case cd do done echo elif else esac exit export fi for function if in local return set source then while sudo",
  ),
};

const SQL: Language = {
  rules: [
    ["comment", "--[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)"],
    ["string", "'(?:''|[^'])*'?"],
    ["number", NUMBER],
  ],
  keywords: words(
    "add all alter and as asc between by case create default delete desc distinct drop else end exists from group having if in index inner insert into is join key left like limit not null offset on or order outer primary right select set table then union update values view when where with",
  ),
  ignoreCase: true,
};

const JSON_LANGUAGE: Language = {
  rules: [
    ["key", '"(?:\\\\.|[^"\\\\\\n])*"(?=\\s*:)'],
    ["string", DOUBLE],
    ["number", `-?${NUMBER}`],
  ],
  keywords: words("true false null"),
};

const MARKUP: Language = {
  rules: [
    ["comment", "<!--[\\s\\S]*?(?:-->|$)"],
    ["keyword", "</?[A-Za-z][\\w:-]*|/?>"],
    ["key", "\\b[\\w:-]+(?==[\"'])"],
    ["string", `(?<==)(?:${DOUBLE}|${SINGLE})`],
  ],
  keywords: new Set(),
};

const CONFIG: Language = {
  rules: [
    ["comment", "(?<=^|\\s)#[^\\n]*"],
    ["key", "(?<=^|\\n)[ \\t-]*[\\w.-]+(?=\\s*[:=])"],
    ["string", `${DOUBLE}|${SINGLE}`],
    ["number", NUMBER],
  ],
  keywords: words("true false null yes no on off"),
};

const LANGUAGES: Record<string, Language> = {
  py: PYTHON,
  python: PYTHON,
  python3: PYTHON,
  ipython: PYTHON,
  js: SCRIPT,
  jsx: SCRIPT,
  ts: SCRIPT,
  tsx: SCRIPT,
  javascript: SCRIPT,
  typescript: SCRIPT,
  java: SCRIPT,
  c: SCRIPT,
  cpp: SCRIPT,
  "c++": SCRIPT,
  csharp: SCRIPT,
  cs: SCRIPT,
  go: SCRIPT,
  rust: SCRIPT,
  rs: SCRIPT,
  kotlin: SCRIPT,
  swift: SCRIPT,
  php: SCRIPT,
  css: SCRIPT,
  sh: SHELL,
  bash: SHELL,
  shell: SHELL,
  zsh: SHELL,
  console: SHELL,
  sql: SQL,
  json: JSON_LANGUAGE,
  jsonl: JSON_LANGUAGE,
  html: MARKUP,
  xml: MARKUP,
  svg: MARKUP,
  yaml: CONFIG,
  yml: CONFIG,
  toml: CONFIG,
  ini: CONFIG,
};

const expressions = new Map<Language, RegExp>();

function expressionOf(language: Language): RegExp {
  let found = expressions.get(language);
  if (!found) {
    const groups = language.rules.map(([, rule]) => `(${rule})`);
    found = new RegExp([...groups, "([A-Za-z_$][\\w$]*)"].join("|"), "g");
    expressions.set(language, found);
  }
  return found;
}

/** Split code into pieces with tones. An unknown language is one plain piece. */
export function highlight(code: string, name: string): Piece[] {
  const language = LANGUAGES[name.toLowerCase()];
  if (!language || code.length > HIGHLIGHT_MAX) return [["", code]];
  const pieces: Piece[] = [];
  const add = (tone: Tone, text: string): void => {
    const last = pieces.at(-1);
    if (last && last[0] === tone) pieces[pieces.length - 1] = [tone, last[1] + text];
    else if (text) pieces.push([tone, text]);
  };
  let end = 0;
  for (const found of code.matchAll(expressionOf(language))) {
    add("", code.slice(end, found.index));
    add(toneOf(language, found, code), found[0]);
    end = found.index + found[0].length;
  }
  add("", code.slice(end));
  return pieces;
}

function toneOf(language: Language, found: RegExpMatchArray, code: string): Tone {
  for (const [at, [tone]] of language.rules.entries()) {
    if (found[at + 1] !== undefined) return tone;
  }
  const word = found[0];
  if (language.keywords.has(language.ignoreCase ? word.toLowerCase() : word)) return "keyword";
  return code[found.index! + word.length] === "(" ? "name" : "";
}

/** Break pieces at line ends, so that each line can be shown by itself. */
export function piecesByLine(pieces: Piece[]): Piece[][] {
  const lines: Piece[][] = [[]];
  for (const [tone, text] of pieces) {
    for (const [at, part] of text.split("\n").entries()) {
      if (at) lines.push([]);
      if (part) lines.at(-1)!.push([tone, part]);
    }
  }
  return lines;
}

/** Guess the language of code whose fence names none; empty if it is not clear. */
export function guessLanguage(code: string): string {
  const head = code.slice(0, 2_000);
  if (/^\s*[[{]/.test(head) && isJson(code)) return "json";
  if (/^\s*<(?:!doctype html|html|\?xml|svg)\b/i.test(head)) return "html";
  if (/^(?:\s*(?:def \w+\(|class \w+[(:]|from [\w.]+ import |import \w+))/m.test(head)) return "py";
  if (/^\s*(?:select|insert into|update|create table|with \w+ as)\b/i.test(head)) return "sql";
  if (/^\s*(?:#!.*sh\b|\$ )/.test(head)) return "sh";
  if (/\b(?:const|let|function)\b[^\n]*[;{]\s*$/m.test(head)) return "ts";
  return "";
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
