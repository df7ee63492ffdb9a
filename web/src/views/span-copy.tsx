/** What can be copied of a span: as Markdown, JSON, a request, a link or a command. */

import { exported } from "../api";
import { readBody } from "../bodies";
import type { RunModel } from "../model";
import { Copy } from "../parts/copy";
import { duration } from "../parts/format";
import { Menu } from "../parts/menu";
import type { ReproduceData, SpanData } from "../types";
import { ask } from "../use-query";

interface Props {
  run: RunModel;
  index: number;
  data: SpanData | null;
}

export function CopyActions({ run, index, data }: Props) {
  const id = run.shortId(index);
  const curl = async (): Promise<string> =>
    (await ask<ReproduceData>("reproduce", { id, language: "curl" })).text;
  return (
    <Menu label="Copy" align="right">
      {() => (
        <div class="choices copy-choices">
          {data && <Copy label="Markdown" text={() => asMarkdown(run, index, data)} />}
          {data && <Copy label="JSON" text={() => JSON.stringify(data, null, 2)} />}
          {data && !exported && isRequest(data) && <Copy label="cURL" text={curl} />}
          <Copy label="Link" text={() => location.href} />
          <Copy label="CLI command" text={`vestige span ${id}`} />
        </div>
      )}
    </Menu>
  );
}

/** Return true if the request can be sent again: only calls recorded on the wire. */
const isRequest = ({ span }: SpanData): boolean =>
  "url" in span.attributes && "method" in span.attributes;

const COPY_MAX = 20_000;

async function asMarkdown(run: RunModel, index: number, data: SpanData): Promise<string> {
  const { span } = data;
  const took = duration(run.duration(index)) || "not finished";
  const lines = [
    `## ${span.type} ${span.name} (${span.short_id})`,
    "",
    `- run: ${run.run.name} (${run.run.short_id})`,
    `- status: ${span.status ?? "open"}, ${took}, started ${span.started_at}`,
    ...Object.entries(span.attributes).map(([name, value]) => `- ${name}: ${String(value)}`),
  ];
  for (const which of ["input", "output"] as const) {
    if (!span[which]) continue;
    const body = await readBody(span.short_id, which, COPY_MAX).catch(() => null);
    if (body) lines.push("", `### ${which}`, "", "````", body.text.slice(0, COPY_MAX), "````");
  }
  return lines.join("\n");
}
