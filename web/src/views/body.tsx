/** One body of a span: formatted, raw, as a hex dump, or as changes since the previous request. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { type Body, hexLines, readBody, type Which } from "../bodies";
import { Code } from "../parts/code";
import { Copy } from "../parts/copy";
import { bytes } from "../parts/format";
import { Failed, Loading } from "../parts/placeholders";
import { pretty } from "../parts/pretty-json";
import type { SpanDiffData } from "../types";
import { asApiError, useAnswer } from "../use-query";
import { Differences } from "./span-diff";

type Look = "pretty" | "raw" | "bytes" | "diff";
const LOOKS: Record<Look, string> = {
  pretty: "Formatted",
  raw: "Raw",
  bytes: "Hex",
  diff: "Changes since previous call",
};

interface Props {
  span: string;
  which: Which;
  /** True if there may be a previous request to compare with. */
  compared: boolean;
}

export function BodyView({ span, which, compared }: Props) {
  const { body, error } = useBody(span, which);
  const [look, setLook] = useState<Look>("pretty");
  const looks = (Object.keys(LOOKS) as Look[]).filter((one) => one !== "diff" || compared);
  return (
    <div class="column grow">
      <div class="rowline wrap viewtools">
        <span class="rowline" role="group" aria-label="Format">
          {looks.map((one) => (
            <button
              key={one}
              type="button"
              class="plain"
              aria-pressed={look === one}
              onClick={() => setLook(one)}
            >
              {LOOKS[one]}
            </button>
          ))}
        </span>
        {body && <span class="quiet">{bytes(body.size_bytes)}</span>}
        {body && <Copy text={body.text} />}
      </div>
      {error && <Failed error={error} />}
      {!body && !error && <Loading what="the body" />}
      {body?.note && <div class="notice warn">{body.note}</div>}
      {body && body.bytes.length < body.size_bytes && (
        <div class="notice warn">
          Showing the first {bytes(body.bytes.length)} of {bytes(body.size_bytes)}. The rest:{" "}
          <code>
            vestige body {span} --bytes {body.bytes.length}:
          </code>
        </div>
      )}
      {body && !body.isText && look !== "bytes" && <div class="notice">Contains binary data</div>}
      {body && (look === "diff" ? <Before span={span} /> : <Shown body={body} look={look} />)}
    </div>
  );
}

function Shown({ body, look }: { body: Body; look: Look }) {
  const text = useMemo(
    () =>
      look === "bytes" ? hexLines(body.bytes) : look === "pretty" ? pretty(body.text) : body.text,
    [body, look],
  );
  return <Code text={text} label="Body" class="grow" />;
}

function Before({ span }: { span: string }) {
  const { data, error } = useAnswer<SpanDiffData>("diff", { a: span, prev: true });
  if (error) return <Failed error={error} />;
  if (!data) return <Loading what="previous call" />;
  return <Differences data={data} />;
}

export function useBody(span: string, which: Which): { body: Body | null; error: ApiError | null } {
  const [state, setState] = useState<{ key: string; body: Body | null; error: ApiError | null }>({
    key: "",
    body: null,
    error: null,
  });
  const key = `${span} ${which}`;
  useEffect(() => {
    let gone = false;
    readBody(span, which).then(
      (body) => !gone && setState({ key, body, error: null }),
      (problem: unknown) => !gone && setState({ key, body: null, error: asApiError(problem) }),
    );
    return () => {
      gone = true;
    };
  }, [key]);
  return state.key === key ? state : { body: null, error: null };
}
