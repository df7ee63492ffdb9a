/** A text from a trace, rendered, folded when it is long; the rest is fetched on request. */

import { useState } from "preact/hooks";
import { readBody } from "../bodies";
import { searched } from "../router";
import type { Text } from "../types";
import { asApiError } from "../use-query";
import { Code } from "./code";
import { Copy } from "./copy";
import { findWords } from "./find-words";
import { bytes, visible } from "./format";
import { RenderedText } from "./rendered-text";
import { beginning, withoutRepeats } from "./shortened-text";
import { parseJson } from "./text-kind";

const NORMAL = { chars: 1_800, lines: 24 };
/** What the model saw is read as a whole. */
const ROOMY = { chars: 6_000, lines: 100 };
const BRIEF = { chars: 900, lines: 12, foldsCode: true };
/** Shorter texts need no tools. */
const TOOLS_CHARS = 80;

type ShownText = Pick<Text, "text" | "size_bytes" | "cut" | "body" | "repeats">;

interface Props {
  text: ShownText;
  /** What a program wrote: in a monospaced font. */
  code?: boolean;
  /** What a program runs, such as a tool's arguments: code or JSON, never Markdown. */
  source?: boolean;
  /** Folded earlier, for a view of many texts. */
  brief?: boolean;
  /** Folded later, for a view of one message. */
  roomy?: boolean;
  /** Appended in a muted colour. */
  more?: string;
}

/** True if a search in the run has its words here. */
const isFoundIn = (text: string): boolean =>
  searched.value.trim() !== "" && findWords(text, searched.value).length > 0;

export function FoldableText({
  text,
  code = false,
  source: isCode = false,
  brief = false,
  roomy = false,
  more = "",
}: Props) {
  /** Null until it is opened or closed by hand. */
  const [chosen, setOpen] = useState<boolean | null>(null);
  const [isSource, setSource] = useState(false);
  const [fullText, setFullText] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const source = fullText ?? withoutRepeats(text);
  const begin = beginning(source, brief ? BRIEF : roomy ? ROOMY : NORMAL);
  const long = begin !== null;
  // A tree of JSON folds by itself; its beginning alone would not be JSON.
  const folds = long && (isSource || parseJson(source) === undefined);
  const open = chosen ?? (folds && isFoundIn(source.slice(begin?.length ?? 0)));
  const seen = folds && !open ? begin! : source;
  const fetchFullText = async (): Promise<void> => {
    if (!text.body) return;
    try {
      const body = await readBody(text.body.span, text.body.which);
      setFullText(body.text);
      setOpen(true);
      setSource(true); // the full body has the message in its request
      if (body.bytes.length < body.size_bytes)
        setProblem(`Showing the first ${bytes(body.bytes.length)} of ${bytes(body.size_bytes)}.`);
    } catch (error) {
      setProblem(asApiError(error).message);
    }
  };
  return (
    <div class="foldable">
      {isSource && open && long ? (
        <Code text={source} label="Text" class="tall" />
      ) : isSource ? (
        <pre class="trace code-block" dir="auto">
          {visible(seen)}
        </pre>
      ) : (
        <RenderedText text={seen} as={isCode ? "source" : code ? "output" : "prose"} />
      )}
      {more && <span class="quiet trace">{visible(more)}</span>}
      {(long || text.cut || (source.length > TOOLS_CHARS && !brief)) && (
        <div class="rowline wrap foldable-tools">
          {folds && (
            <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
              {open ? "Show less" : "Show more"}
            </button>
          )}
          {text.cut && fullText === null && text.body && (
            <button type="button" class="plain" onClick={() => void fetchFullText()}>
              Show full {text.body.which} ({bytes(text.size_bytes)})
            </button>
          )}
          <button
            type="button"
            class="plain"
            aria-pressed={isSource}
            onClick={() => setSource(!isSource)}
          >
            Plain text
          </button>
          <Copy text={source} />
        </div>
      )}
      {problem && <div class="notice warn">{problem}</div>}
    </div>
  );
}
