/** Lines of a text with their numbers; long lines are broken into pieces. */

const PIECE = 2_000;

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

/** The first line with the words that are searched for; null if there is none. */
export function findLine(lines: CodeLine[], words: string): number | null {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return null;
  const escaped = JSON.stringify(wanted).slice(1, -1);
  const found = lines.findIndex((line) => {
    const text = line.text.toLowerCase();
    return text.includes(wanted) || text.includes(escaped);
  });
  return found < 0 ? null : found;
}
