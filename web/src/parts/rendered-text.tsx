/**
 * A text of a trace in the form that reads best: Markdown, a JSON tree, a table, a coloured diff or
 * terminal output, HTML as source. Nothing of it becomes markup of this page.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import { visible } from "./format";
import { JsonTree } from "./json-tree";
import { Markdown } from "./markdown";
import { AnsiBlock, CodeBlock, DiffBlock } from "./pieces";
import { kindOf, parseJson } from "./text-kind";

interface Props {
  text: string;
  /** `prose` is Markdown; `output` is what a program wrote, `source` is code or arguments. */
  as?: "prose" | "output" | "source";
  label?: string;
}

/** Marks of Markdown that program output rarely has by chance. */
const MARKDOWN = /^(?:#{1,4} \S|```|\|.+\|\s*$)|\*\*[^*\n]+\*\*/m;

export function RenderedText({ text, as = "prose", label = "Text" }: Props) {
  const kind = useMemo(() => kindOf(text), [text]);
  switch (kind) {
    case "json":
      return <JsonTree value={parseJson(text)!} label={label} />;
    case "diff":
      return <DiffBlock text={text} />;
    case "ansi":
      return <AnsiBlock text={text} />;
    case "html":
      return <HtmlSource text={text} />;
    default:
      if (as === "source") return <CodeBlock code={text} />;
      if (as === "prose" || MARKDOWN.test(text.slice(0, 20_000))) return <Markdown text={text} />;
      return <pre class="trace code-block">{visible(text)}</pre>;
  }
}

function HtmlSource({ text }: { text: string }) {
  const [preview, setPreview] = useState(false);
  return (
    <div class="html-source">
      <div class="rowline" role="group" aria-label="HTML">
        <button
          type="button"
          class="plain"
          aria-pressed={!preview}
          onClick={() => setPreview(false)}
        >
          Source
        </button>
        <button type="button" class="plain" aria-pressed={preview} onClick={() => setPreview(true)}>
          Preview
        </button>
      </div>
      {preview ? <HtmlPreview text={text} /> : <CodeBlock code={text} language="html" />}
    </div>
  );
}

/**
 * A frame without scripts, forms, links to this page or network: its sandbox allows nothing, and it
 * inherits the policy of this page.
 */
function HtmlPreview({ text }: { text: string }) {
  const [address, setAddress] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([text], { type: "text/html;charset=utf-8" }));
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [text]);
  if (!address) return null;
  return <iframe class="html-preview" title="Preview of the HTML" sandbox="" src={address} />;
}
