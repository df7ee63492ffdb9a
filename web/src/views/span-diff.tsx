/** The differences between two spans: fields, then bodies. */

import { diffLines } from "diff";
import { useMemo } from "preact/hooks";
import { CodeLines } from "../parts/code";
import type { CodeLine } from "../parts/code-lines";
import { FoldableText } from "../parts/foldable-text";
import { count, oneLine, visible } from "../parts/format";
import { pretty } from "../parts/pretty-json";
import { TextDiff } from "../parts/text-diff";
import type { BodyDiff, FieldDiff, SpanDiffData } from "../types";

interface DifferencesProps {
  data: SpanDiffData;
  /** True: what came back is read before what was sent. */
  resultFirst?: boolean;
}

export function Differences({ data, resultFirst = false }: DifferencesProps) {
  const sides = [
    <OneBody key="input" title="Input" diff={data.input} />,
    <OneBody key="output" title="Output" diff={data.output} />,
  ];
  const hasBodies = [data.input, data.output].some((diff) => diff && !diff.identical);
  return (
    <div class="column grow scroll differences" tabIndex={0} role="region" aria-label="Differences">
      <p class="quiet changes-of">
        {data.differs ? "Changes from " : "No differences between "}
        <span class="mono">{data.a}</span> {data.differs ? "to" : "and"}{" "}
        <span class="mono">{data.b}</span>
      </p>
      {resultFirst ? sides.reverse() : sides}
      {data.fields.length > 0 && (
        <details open={!hasBodies}>
          <summary>
            Attributes <span class="quiet">{count(data.fields.length)} differ</span>
          </summary>
          <Fields title="Attribute" rows={data.fields} />
        </details>
      )}
    </div>
  );
}

function OneBody({ title, diff }: { title: string; diff: BodyDiff | null | undefined }) {
  if (!diff) return null;
  if (diff.identical)
    return (
      <p>
        <b>{title}</b> <span class="quiet">Identical</span>
      </p>
    );
  return (
    <section>
      <h3>
        {title}
        {diff.first_byte != null && (
          <span class="quiet"> · First difference at byte {count(diff.first_byte)}</span>
        )}
      </h3>
      {diff.note && <p class="notice">{oneLine(diff.note, 300)}</p>}
      {diff.only_ids_or_times && <p class="quiet">Only ids or times differ.</p>}
      {diff.notes?.map((note, at) => (
        <p class="notice" key={at}>
          {oneLine(note, 300)}
        </p>
      ))}
      {diff.a_text != null && diff.b_text != null && (
        <TextDiff a={diff.a_text} b={diff.b_text} label={`Changes of the ${title.toLowerCase()}`} />
      )}
      {diff.words && diff.a_text == null && !diff.differences?.length && (
        <pre class="trace words-diff">
          <Words text={diff.words} />
        </pre>
      )}
      {(diff.differences?.length ?? 0) > 0 && diff.a_text == null && (
        <Fields title="Field" rows={diff.differences!} />
      )}
      {(diff.differences_left_out ?? 0) > 0 && (
        <p class="quiet">{count(diff.differences_left_out)} more not shown</p>
      )}
    </section>
  );
}

/** Render `…[-old-]{+new+}…` as deletions and insertions; the last mark may be truncated. */
function Words({ text }: { text: string }) {
  const parts = text.split(/(\[-[\s\S]*?(?:-\]|$)|\{\+[\s\S]*?(?:\+\}|$))/);
  return (
    <>
      {parts.map((part, at) => {
        if (part.startsWith("[-"))
          return <del key={at}>{visible(part.slice(2).replace(/-\]$/, ""))}</del>;
        if (part.startsWith("{+"))
          return <ins key={at}>{visible(part.slice(2).replace(/\+\}$/, ""))}</ins>;
        return <span key={at}>{visible(part)}</span>;
      })}
    </>
  );
}

const hasTexts = (row: FieldDiff): boolean => row.a_text !== undefined && row.b_text !== undefined;

/** A text of one side, all of it. */
const textOf = (text: string) => ({ text, size_bytes: text.length, cut: false, body: null });

export function Fields({ title, rows }: { title: string; rows: FieldDiff[] }) {
  return (
    <table class="plain fields">
      <thead>
        <tr>
          <th>{title}</th>
          <th>Before</th>
          <th>After</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, at) =>
          hasTexts(row) && row.mark !== "~" ? (
            <tr key={at}>
              <td class="trace" colSpan={3}>
                <span class="mono">
                  {row.mark} {oneLine(row.where, 120)}
                </span>
                <div class={row.mark === "+" ? "side-added" : "side-removed"}>
                  <FoldableText text={textOf(row.a_text || row.b_text!)} code />
                </div>
              </td>
            </tr>
          ) : hasTexts(row) ? (
            <tr key={at}>
              <td class="trace" colSpan={3}>
                <span class="mono">
                  {row.mark} {oneLine(row.where, 120)}
                </span>
                <TextDiff
                  a={row.a_text!}
                  b={row.b_text!}
                  label={`Changes of ${oneLine(row.where, 120)}`}
                />
              </td>
            </tr>
          ) : (
            <tr key={at}>
              <td class="mono trace">
                {row.mark} {oneLine(row.where, 120)}
              </td>
              <td class="trace">{oneLine(row.a ?? "", 300)}</td>
              <td class="trace">{oneLine(row.b ?? "", 300)}</td>
            </tr>
          ),
        )}
      </tbody>
    </table>
  );
}

/** Two texts line by line; JSON laid out first. */
export function LineDiff({ a, b, label }: { a: string; b: string; label: string }) {
  const lines = useMemo(() => diffed(pretty(a), pretty(b)), [a, b]);
  return <CodeLines lines={lines} label={label} class="grow" />;
}

const COMPARE_MS = 2_000;

function diffed(a: string, b: string): CodeLine[] {
  const parts = diffLines(a, b, { timeout: COMPARE_MS });
  if (!parts) return [...marked(a, "del"), ...marked(b, "add")];
  let number = 1;
  return parts.flatMap((part) => {
    const lines = part.value.replace(/\n$/, "").split("\n");
    return lines.map((text) => {
      const mood = part.added ? "add" : part.removed ? "del" : undefined;
      return {
        number: part.removed ? null : number++,
        text: `${mood === "add" ? "+ " : mood === "del" ? "− " : "  "}${text}`,
        mood,
      } satisfies CodeLine;
    });
  });
}

const marked = (text: string, mood: "add" | "del"): CodeLine[] =>
  text
    .split("\n")
    .map((line, at) => ({ number: at + 1, text: `${mood === "add" ? "+ " : "− "}${line}`, mood }));
