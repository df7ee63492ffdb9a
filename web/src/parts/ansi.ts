/** Terminal colours (ANSI SGR) as pieces with classes; other escape sequences are left out. */

export interface AnsiPiece {
  text: string;
  /** Names of classes: `bold`, `dim`, `italic`, `underline`, `fg-1`, `bg-4`, ... */
  classes: string[];
}

interface Style {
  fg: number | null;
  bg: number | null;
  flags: Set<string>;
}

const ESCAPE = "\u001b";
const SEQUENCE = new RegExp(
  `${ESCAPE}(?:\\[([0-9;:]*)([A-Za-z])|\\][^\\u0007${ESCAPE}]*(?:\\u0007|${ESCAPE}\\\\)|[()][A-Z0-9])`,
  "g",
);
const HAS_COLOURS = new RegExp(`${ESCAPE}\\[[0-9;:]*m`);

export const hasColours = (text: string): boolean => HAS_COLOURS.test(text);

/** Split a text at its escape sequences. */
export function parseAnsi(text: string): AnsiPiece[] {
  const pieces: AnsiPiece[] = [];
  const style: Style = { fg: null, bg: null, flags: new Set() };
  let end = 0;
  for (const found of text.matchAll(SEQUENCE)) {
    add(pieces, text.slice(end, found.index), style);
    if (found[2] === "m") apply(style, (found[1] ?? "").split(/[;:]/).map(Number));
    end = found.index + found[0].length;
  }
  add(pieces, text.slice(end), style);
  return pieces;
}

function add(pieces: AnsiPiece[], text: string, style: Style): void {
  if (!text) return;
  const classes = [...style.flags];
  if (style.fg !== null) classes.push(`fg-${style.fg}`);
  if (style.bg !== null) classes.push(`bg-${style.bg}`);
  pieces.push({ text, classes });
}

const FLAGS: Record<number, string> = { 1: "bold", 2: "dim", 3: "italic", 4: "underline" };

function apply(style: Style, codes: number[]): void {
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at]!;
    if (code === 0) {
      style.fg = style.bg = null;
      style.flags.clear();
    } else if (FLAGS[code]) style.flags.add(FLAGS[code]);
    else if (code === 22) {
      style.flags.delete("bold");
      style.flags.delete("dim");
    } else if (code === 23) style.flags.delete("italic");
    else if (code === 24) style.flags.delete("underline");
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 90 && code <= 97) style.fg = code - 90;
    else if (code === 39) style.fg = null;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 100 && code <= 107) style.bg = code - 100;
    else if (code === 49) style.bg = null;
    else if (code === 38 || code === 48) {
      const colour = codes[at + 1] === 5 ? fromPalette(codes[at + 2] ?? 0) : fromRgb(codes, at + 2);
      if (code === 38) style.fg = colour;
      else style.bg = colour;
      at += codes[at + 1] === 5 ? 2 : 4;
    }
  }
}

/** The nearest of the eight colours: the theme decides how they look. */
function fromPalette(index: number): number {
  if (index < 16) return index % 8;
  if (index >= 232) return index < 244 ? 0 : 7;
  const cube = index - 16;
  return nearest(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51);
}

const fromRgb = (codes: number[], at: number): number =>
  nearest(codes[at] ?? 0, codes[at + 1] ?? 0, codes[at + 2] ?? 0);

const nearest = (red: number, green: number, blue: number): number =>
  (red > 110 ? 1 : 0) + (green > 110 ? 2 : 0) + (blue > 110 ? 4 : 0);
