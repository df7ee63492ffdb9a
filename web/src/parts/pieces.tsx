/** Coloured text: code by its syntax, terminal output by its escape sequences, diffs by their lines. */

import { useMemo } from "preact/hooks";
import { parseAnsi } from "./ansi";
import { visible } from "./format";
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

/** A block of code; an empty language is guessed. */
export function CodeBlock({ code, language = "" }: { code: string; language?: string }) {
  const name = useMemo(() => language || guessLanguage(code), [code, language]);
  if (name === "diff") return <DiffBlock text={code} />;
  return (
    <pre class="trace code-block">
      <Highlighted code={code} language={name} />
    </pre>
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
