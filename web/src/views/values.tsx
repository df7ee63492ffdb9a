/** Arguments and result of a span that is not a model call, as tables, trees, text or pictures. */

import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { type Body, readBody, type Which } from "../bodies";
import type { RunModel } from "../model";
import { Edits } from "../parts/edits";
import { FoldableText } from "../parts/foldable-text";
import { bytes, visible } from "../parts/format";
import { imageOf } from "../parts/image";
import { Failed, Loading } from "../parts/placeholders";
import type { SpanData } from "../types";
import { asApiError } from "../use-query";

/** Bytes of one side that are read; Raw has more. */
const READ_MAX = 400_000;

const ERROR_KEYS = ["error.type", "exception.type", "error.message", "exception.message"];

interface Props {
  run: RunModel;
  index: number;
  data: SpanData;
}

interface LogLine {
  level: string;
  message: string;
  attributes: Record<string, unknown>;
}

export function Values({ run, index, data }: Props) {
  const isTool = run.type(index) === "tool";
  return (
    <div class="scroll grow values" tabIndex={0} role="region" aria-label="Content">
      <ErrorOf data={data} withTraceback={false} />
      <ErrorLogs data={data} />
      {!hasContent(run, index, data) && (
        <p class="quiet">No input, output or error message was recorded</p>
      )}
      <Edits edits={data.edits} />
      {run.inputBytes(index) !== null && (
        <Side run={run} index={index} which="input" title={isTool ? "Arguments" : "Input"} />
      )}
      {run.outputBytes(index) !== null ? (
        <Side run={run} index={index} which="output" title={isTool ? "Result" : "Output"} />
      ) : (
        isTool && (
          <p class="quiet">{run.status(index) === null ? "Still running" : "No result recorded"}</p>
        )
      )}
      <TracebackOf data={data} />
    </div>
  );
}

function hasContent(run: RunModel, index: number, data: SpanData): boolean {
  const { attributes } = data.span;
  return (
    run.inputBytes(index) !== null ||
    run.outputBytes(index) !== null ||
    errorLogs(data).length > 0 ||
    ERROR_KEYS.some((key) => attributes[key] != null)
  );
}

const titleOf = ({ span }: SpanData): string | null => {
  const type = span.attributes["error.type"] ?? span.attributes["exception.type"];
  const message = span.attributes["error.message"] ?? span.attributes["exception.message"];
  if (type == null && message == null) return null;
  return [type, message].filter((one) => one != null).join(": ");
};

/** The error of a span. Its traceback is shown here, or below what the span received. */
export function ErrorOf({
  data,
  withTraceback = true,
}: {
  data: SpanData;
  withTraceback?: boolean;
}) {
  const title = titleOf(data);
  if (title === null) return null;
  return (
    <section class="notice bad error-box">
      <strong class="trace">{visible(title)}</strong>
      {withTraceback && <TracebackOf data={data} />}
    </section>
  );
}

const ERROR_LOGS_SHOWN = 3;

const errorLogs = ({ logs }: SpanData): LogLine[] =>
  (logs as unknown as LogLine[]).filter((log) => log.level === "error").slice(-ERROR_LOGS_SHOWN);

/** The last errors that were logged in a span: of a process, the exception that ended it. */
function ErrorLogs({ data }: { data: SpanData }) {
  return (
    <>
      {errorLogs(data).map((log, at) => {
        const {
          "error.type": type,
          "error.message": message,
          "error.stack": stack,
        } = log.attributes;
        const error = [type, message].filter((one) => one != null).join(": ");
        return (
          <section class="notice bad error-box" key={at}>
            <strong class="trace">
              {visible([log.message, error].filter(Boolean).join(": "))}
            </strong>
            <Traceback stack={stack} />
          </section>
        );
      })}
    </>
  );
}

function TracebackOf({ data }: { data: SpanData }) {
  const { attributes } = data.span;
  const stack = attributes["error.stack"] ?? attributes["exception.stacktrace"];
  return <Traceback stack={stack} title={titleOf(data)} />;
}

/** The frames in full; the last one, which raised, is at the end. */
function Traceback({ stack, title = null }: { stack: unknown; title?: string | null }) {
  if (typeof stack !== "string" || !stack.trim() || stack.trim() === title) return null;
  return (
    <details class="traceback" open>
      <summary>Traceback</summary>
      <pre class="trace">{visible(stack.trim())}</pre>
    </details>
  );
}

interface SideProps {
  run: RunModel;
  index: number;
  which: Which;
  title: string;
}

function Side({ run, index, which, title }: SideProps) {
  const id = run.shortId(index);
  const [body, setBody] = useState<Body | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    let gone = false;
    readBody(id, which, READ_MAX).then(
      (read) => !gone && setBody(read),
      (problem: unknown) => !gone && setError(asApiError(problem)),
    );
    return () => {
      gone = true;
    };
  }, [id, which]);
  return (
    <section class="side-value">
      <h3>
        {title} <span class="quiet">{bytes(body?.size_bytes)}</span>
      </h3>
      {error && <Failed error={error} />}
      {!body && !error && <Loading what={title.toLowerCase()} />}
      {body && <Shown body={body} id={id} which={which} label={title} />}
    </section>
  );
}

function Shown({
  body,
  id,
  which,
  label,
}: {
  body: Body;
  id: string;
  which: Which;
  label: string;
}) {
  const image = imageOf(body);
  if (image)
    return <img class="chat-image" src={image} alt={`${label}, ${bytes(body.size_bytes)}`} />;
  if (body.note) return <div class="notice warn">{visible(body.note)}</div>;
  if (!body.isText) return <p class="quiet">Binary data, {bytes(body.size_bytes)}. See Raw.</p>;
  if (!body.text.trim()) return <p class="quiet">Empty</p>;
  const text = {
    text: body.text,
    size_bytes: body.size_bytes,
    cut: body.bytes.length < body.size_bytes,
    body: { span: id, which },
  };
  return <FoldableText text={text} code />;
}
