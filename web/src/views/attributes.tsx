/** Facts and attributes of a span, its relatives and its notes. */

import type { RunModel } from "../model";
import { cost, count, duration, moment, oneLine, visible } from "../parts/format";
import { href, openSpan } from "../router";
import type { SpanData } from "../types";
import { useOverview } from "./step-index";
import { ErrorOf } from "./values";

/** Shown above the others. */
const IN_ERROR = new Set([
  "error.type",
  "error.message",
  "error.stack",
  "exception.type",
  "exception.message",
  "exception.stacktrace",
]);

export function Attributes({ run, index, data }: { run: RunModel; index: number; data: SpanData }) {
  const { span } = data;
  const common = useOverview(run).data?.common_attributes ?? {};
  const all = Object.entries(span.attributes).filter(([name]) => !IN_ERROR.has(name));
  const own = all.filter(([name, value]) => common[name] !== value);
  const shared = all.filter(([name, value]) => common[name] === value);
  return (
    <div class="column grow scroll facts" tabIndex={0} role="region" aria-label="Attributes">
      <ErrorOf data={data} />
      <dl>
        <Fact name="Service">{visible(span.component)}</Fact>
        <Fact name="Started">{moment(span.started_at)}</Fact>
        <Fact name="Duration">{duration(run.duration(index)) || "Not finished"}</Fact>
        {run.model(index) && <Fact name="Model">{visible(run.model(index))}</Fact>}
        {run.inputTokens(index) !== null && <Fact name="Tokens">{usage(run, index)}</Fact>}
        {data.cost_usd !== null && <Fact name="Cost">{cost(data.cost_usd)}</Fact>}
        {span.input?.cut && <Fact name="Input">{span.input.cut}</Fact>}
        {span.output?.cut && <Fact name="Output">{span.output.cut}</Fact>}
        {Object.keys(span.redacted).length > 0 && (
          <Fact name="Redacted">
            {Object.entries(span.redacted)
              .map(([rule, times]) => `${rule} × ${times}`)
              .join(", ")}
          </Fact>
        )}
        {data.parent && (
          <Fact name="Parent">
            <SpanButton run={run} short={data.parent} />
          </Fact>
        )}
        {data.children.length > 0 && (
          <Fact name="Children">
            {data.children.slice(0, 30).map((short) => (
              <SpanButton key={short} run={run} short={short} />
            ))}
            {data.children.length > 30 && ` and ${data.children.length - 30} more`}
          </Fact>
        )}
        {span.links.map((link, at) => (
          <Fact key={at} name={`Links to${link.reason ? ` (${oneLine(link.reason, 40)})` : ""}`}>
            <LinkTo run={run} runId={link.run_id} spanId={link.span_id} />
          </Fact>
        ))}
        {data.linked_from.map((link, at) => (
          <Fact key={at} name={`Linked from${link.reason ? ` (${oneLine(link.reason, 40)})` : ""}`}>
            <LinkTo run={run} runId={link.run_id} spanId={link.span_id} />
          </Fact>
        ))}
      </dl>
      {own.length > 0 && <Table pairs={own} />}
      {shared.length > 0 && (
        <details>
          <summary>On every span ({count(shared.length)})</summary>
          <Table pairs={shared} />
        </details>
      )}
    </div>
  );
}

const Table = ({ pairs }: { pairs: [string, unknown][] }) => (
  <table class="plain attributes">
    <thead>
      <tr>
        <th>Attribute</th>
        <th>Value</th>
      </tr>
    </thead>
    <tbody>
      {pairs.map(([name, value]) => (
        <tr key={name}>
          <td class="mono trace">{visible(name)}</td>
          <td class="trace">
            <pre class="trace">{visible(String(value))}</pre>
          </td>
        </tr>
      ))}
    </tbody>
  </table>
);

function usage(run: RunModel, index: number): string {
  const [read, written] = [run.cacheRead(index), run.cacheWrite(index)];
  const cached = [
    read ? `${count(read)} cached` : "",
    written ? `${count(written)} written to cache` : "",
  ].filter(Boolean);
  const input = `${count(run.inputTokens(index))} in${cached.length ? ` (${cached.join(", ")})` : ""}`;
  const output = run.outputTokens(index) === null ? "" : ` · ${count(run.outputTokens(index))} out`;
  return `${input}${output}`;
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd class="trace">{children}</dd>
    </>
  );
}

export function SpanButton({ run, short }: { run: RunModel; short: string }) {
  const index = run.ofShortId(short);
  if (index === undefined) return <span class="mono">{short}</span>;
  return (
    <button type="button" class="plain" onClick={() => openSpan(run.number(index))}>
      <span class="mono">s{run.number(index)}</span>{" "}
      <span class="quiet">{oneLine(run.name(index), 40)}</span>
    </button>
  );
}

function LinkTo({ run, runId, spanId }: { run: RunModel; runId: string | null; spanId: string }) {
  const index = runId === null || runId === run.run.id ? run.byId.get(spanId) : undefined;
  if (index !== undefined) return <SpanButton run={run} short={run.shortId(index)} />;
  if (runId)
    return (
      <a class="mono" href={href("run", runId)}>
        {spanId} of {runId.slice(0, 8)}
      </a>
    );
  return <span class="mono">{spanId}</span>;
}
