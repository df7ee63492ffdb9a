/** Coloured text: code by its syntax, terminal output by its escape sequences, diffs by their lines. */

import { createContext } from "preact";
import { useContext, useMemo } from "preact/hooks";
import { parseAnsi } from "./ansi";
import { count, oneLine, visible } from "./format";
import { guessLanguage, highlight } from "./highlight";
import { diffTone } from "./text-kind";

export function Highlighted({ code, language }: { code: string; language: string }) {
  const pieces = useMemo(() => highlight(code, language), [code, language]);
  return (
    <>
      {pieces.map(([tone, text], at) =>
        tone ? (
          <span key={at} class={`hl-${tone}`}>
            {visible(text)}
          </span>
        ) : (
          visible(text)
        ),
      )}
    </>
  );
}

/** True: longer blocks of code are one line that opens. */
export const FoldsCode = createContext(false);
const FOLDED_LINES_MIN = 5;

/** A block of code; an empty language is guessed. */
export function CodeBlock({ code, language = "" }: { code: string; language?: string }) {
  const name = useMemo(() => language || guessLanguage(code), [code, language]);
  const lines = code.split("\n");
  const folds = useContext(FoldsCode) && lines.length >= FOLDED_LINES_MIN;
  if (name === "diff") return <DiffBlock text={code} />;
  const block = (
    <pre class="trace code-block">
      <Highlighted code={code} language={name} />
    </pre>
  );
  if (!folds) return block;
  return (
    <details class="code-fold">
      <summary>
        <span class="cut trace">
          {oneLine(name || "code", 20)} · {count(lines.length)} lines{" "}
          <code>{oneLine(lines.find((line) => /\w/.test(line))?.trim() ?? "", 100)}</code>
        </span>
      </summary>
      {block}
    </details>
  );
}

export function AnsiBlock({ text }: { text: string }) {
  const pieces = useMemo(() => parseAnsi(text), [text]);
  return (
    <pre class="trace code-block">
      {pieces.map((piece, at) => (
        <span key={at} class={piece.classes.map((name) => `ansi-${name}`).join(" ")}>
          {visible(piece.text)}
        </span>
      ))}
    </pre>
  );
}

export function DiffBlock({ text }: { text: string }) {
  return (
    <pre class="trace code-block diff-block">
      {text.split("\n").map((line, at) => (
        <span key={at} class={`diff-line diff-${diffTone(line) || "same"}`}>
          {visible(line)}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
