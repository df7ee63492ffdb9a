/**
 * A text from a trace: as it is, folded when it is long, the rest fetched when asked for. Markdown
 * only on request, and then as headings, lists and code made of elements: never as HTML.
 */

import { useState } from "preact/hooks";
import { asApiError } from "../answers";
import { readBody } from "../bodies";
import type { Text } from "../types";
import { Code, pretty } from "./code";
import { Copy } from "./copy";
import { bytes, visible } from "./format";
import { Markdown } from "./markdown";

const FOLD_CHARS = 1_200;
const FOLD_LINES = 14;
/** Shorter JSON stays on its line. */
const ONE_LINE = 90;

interface Props {
  text: Text;
  /** JSON or the like: laid out, in a fixed font. */
  code?: boolean;
  /** Said after it, quietly. */
  more?: string;
}

export function Telling({ text, code = false, more = "" }: Props) {
  const [open, setOpen] = useState(false);
  const [marked, mark] = useState(false);
  const [whole, setWhole] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const given = whole ?? text.text;
  const told = code && given.length > ONE_LINE ? pretty(given) : given;
  const long = told.length > FOLD_CHARS || told.split("\n", FOLD_LINES + 1).length > FOLD_LINES;
  const seen = long && !open ? folded(told) : told;
  const fetchWhole = async (): Promise<void> => {
    if (!text.body) return;
    try {
      const body = await readBody(text.body.span, text.body.which);
      setWhole(body.text);
      setOpen(true);
      if (body.bytes.length < body.size_bytes) setProblem(`The first ${bytes(body.bytes.length)} of ${bytes(body.size_bytes)}.`);
    } catch (error) {
      setProblem(asApiError(error).message);
    }
  };
  return (
    <div class="telling">
      {open && long && !marked ? (
        <Code text={told} label="Text" class="tall" />
      ) : marked ? (
        <Markdown text={seen} />
      ) : (
        <pre class={`trace ${code ? "mono" : "words"}`} dir="auto">
          {visible(seen)}
          {more && <span class="quiet"> {visible(more)}</span>}
        </pre>
      )}
      {(long || text.cut || !code) && told.length > 80 && (
        <div class="rowline wrap telling-tools">
          {long && <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Less" : `All ${told.length.toLocaleString("en")} characters`}</button>}
          {text.cut && whole === null && text.body && (
            <button type="button" class="plain" onClick={() => void fetchWhole()}>Cut here, {bytes(text.size_bytes)} in all: see the body</button>
          )}
          {!code && <button type="button" class="plain" aria-pressed={marked} onClick={() => mark(!marked)}>Markdown</button>}
          <Copy text={told} />
        </div>
      )}
      {problem && <div class="notice warn">{problem}</div>}
    </div>
  );
}

function folded(text: string): string {
  const lines = text.slice(0, FOLD_CHARS).split("\n").slice(0, FOLD_LINES).join("\n");
  return `${lines.trimEnd()} …`;
}
