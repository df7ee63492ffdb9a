/** A captured file in the form that its content has: picture, Markdown, table, JSON, log or text. */

import { useState } from "preact/hooks";
import { parseCsv } from "../parts/csv";
import { bytes, count, visible } from "../parts/format";
import { imageOf } from "../parts/image";
import { Markdown } from "../parts/markdown";
import { CodeBlock } from "../parts/pieces";
import { Failed, Loading } from "../parts/placeholders";
import { RenderedText } from "../parts/rendered-text";
import type { FileRow } from "../types";
import { BodyView, useBody } from "./body";

const ROWS_SHOWN = 200;
/** Longer files are shown as raw text, of which only the visible lines exist. */
const PREVIEW_MAX = 300_000;

const LANGUAGES: Record<string, string> = {
  py: "py",
  js: "js",
  ts: "ts",
  tsx: "ts",
  jsx: "js",
  sh: "sh",
  sql: "sql",
  yaml: "yaml",
  yml: "yaml",
  toml: "toml",
  ini: "ini",
  env: "ini",
  rs: "rust",
  go: "go",
  java: "java",
  c: "c",
  css: "css",
  xml: "xml",
  diff: "diff",
  patch: "diff",
};

export function FilePreview({ file }: { file: FileRow }) {
  const [raw, setRaw] = useState(file.size_bytes > PREVIEW_MAX);
  return (
    <>
      <div class="rowline viewtools" role="group" aria-label="File view">
        <button type="button" class="plain" aria-pressed={!raw} onClick={() => setRaw(false)}>
          Preview
        </button>
        <button type="button" class="plain" aria-pressed={raw} onClick={() => setRaw(true)}>
          Raw
        </button>
      </div>
      {raw ? (
        <BodyView span={file.span} which={file.body} compared={false} />
      ) : (
        <Preview file={file} />
      )}
    </>
  );
}

function Preview({ file }: { file: FileRow }) {
  const { body, error } = useBody(file.span, file.body);
  if (error) return <Failed error={error} />;
  if (!body) return <Loading what="the file" />;
  const image = imageOf(body);
  const ending = /\.([a-z0-9]+)$/i.exec(file.path)?.[1]?.toLowerCase() ?? "";
  return (
    <div class="scroll grow values" tabIndex={0} role="region" aria-label="File">
      {body.note && <div class="notice warn">{visible(body.note)}</div>}
      {image ? (
        <img class="chat-image" src={image} alt={visible(file.path)} />
      ) : !body.size_bytes ? (
        <p class="quiet">Empty file</p>
      ) : !body.isText ? (
        <p class="quiet">Binary data, {bytes(body.size_bytes)}. See Raw.</p>
      ) : (
        <TextPreview text={body.text} ending={ending} />
      )}
    </div>
  );
}

function TextPreview({ text, ending }: { text: string; ending: string }) {
  if (ending === "md" || ending === "markdown") return <Markdown text={text} />;
  if (ending === "csv" || ending === "tsv") return <CsvTable text={text} ending={ending} />;
  const language = LANGUAGES[ending];
  if (language) return <CodeBlock code={text} language={language} />;
  if (!text.trim()) return <p class="quiet">White space only</p>;
  return <RenderedText text={text} as="output" label="File" />;
}

function CsvTable({ text, ending }: { text: string; ending: string }) {
  const rows = parseCsv(text, ending === "tsv" ? "\t" : ",");
  const [head = [], ...rest] = rows;
  return (
    <>
      <table class="plain">
        <thead>
          <tr>
            {head.map((cell, at) => (
              <th key={at}>{visible(cell)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rest.slice(0, ROWS_SHOWN).map((row, at) => (
            <tr key={at}>
              {row.map((cell, place) => (
                <td key={place} class="trace">
                  {visible(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rest.length > ROWS_SHOWN && (
        <p class="quiet">
          Showing {count(ROWS_SHOWN)} of {count(rest.length)} rows. See Raw.
        </p>
      )}
    </>
  );
}
