/** The pane of the selected span: facts, exact bytes, the prompt's parts, why it happened, and ways to take it along. */

import { useState } from "preact/hooks";
import { ask, useAnswer } from "../answers";
import { exported } from "../api";
import { readBody } from "../bodies";
import type { RunModel } from "../model";
import { Kind, Status } from "../parts/badges";
import { Copy } from "../parts/copy";
import { bytes, cost, count, duration, moment, oneLine, visible } from "../parts/format";
import { Notes } from "../parts/notes";
import { Failed, Loading } from "../parts/state";
import { TabPanel, Tabs } from "../parts/tabs";
import { href, select } from "../state";
import type { ReproduceData, SpanData, WhyData } from "../types";
import { BodyView } from "./body";
import { Segments } from "./segments";
import "./detail.css";

type Part = "facts" | "input" | "output" | "prompt" | "why";

export default function Detail({ run, index }: { run: RunModel; index: number }) {
  const id = run.shortId(index);
  const { data, error, again } = useAnswer<SpanData>("span", { id }, run.status(index) ?? run.next);
  const [part, setPart] = useState<Part>("facts");
  const isCall = run.type(index) === "llm";
  const tabs: { id: Part; label: string; note?: string }[] = [{ id: "facts", label: "Facts" }];
  if (run.inputBytes(index) !== null) tabs.push({ id: "input", label: "Input", note: bytes(run.inputBytes(index)) });
  if (run.outputBytes(index) !== null) tabs.push({ id: "output", label: "Output", note: bytes(run.outputBytes(index)) });
  if (isCall || run.type(index) === "prompt.assembly") tabs.push({ id: "prompt", label: "Prompt" });
  tabs.push({ id: "why", label: "Why" });
  const shown = tabs.some((tab) => tab.id === part) ? part : "facts";
  return (
    <>
      <div class="pane-head">
        <div class="rowline">
          <Kind type={oneLine(run.type(index), 24)} />
          <h2 class="grow cut trace">{oneLine(run.name(index), 120) || "(no name)"}</h2>
          <Status value={run.status(index)} />
          <button type="button" class="plain" aria-label="Close the pane" onClick={() => select(null)}>✕</button>
        </div>
        <TakeAlong run={run} index={index} data={data} />
      </div>
      <Tabs label="Of this span" panel="span-part" current={shown} onPick={setPart} tabs={tabs} />
      <TabPanel panel="span-part" current={shown}>
        {error && <Failed error={error} again={again} />}
        {!data && !error && <Loading />}
        {shown === "facts" && data && <Facts run={run} index={index} data={data} />}
        {(shown === "input" || shown === "output") && <BodyView key={shown} span={id} which={shown} compared={isCall || !exported} />}
        {shown === "prompt" && <Segments span={id} />}
        {shown === "why" && <Why run={run} id={id} version={run.status(index) ?? run.next} />}
      </TabPanel>
    </>
  );
}

function TakeAlong({ run, index, data }: { run: RunModel; index: number; data: SpanData | null }) {
  const id = run.shortId(index);
  const link = (): string => new URL(href("run", run.run.short_id, { span: `s${run.number(index)}` }), location.href).href;
  const curl = async (): Promise<string> => (await ask<ReproduceData>("reproduce", { id, language: "curl" })).text;
  return (
    <div class="rowline wrap take">
      <span class="mono quiet">{id}</span>
      {data && <Copy label="Markdown" text={() => asMarkdown(run, index, data)} />}
      {data && <Copy label="JSON" text={() => JSON.stringify(data, null, 2)} />}
      {data && !exported && isRequest(data) && <Copy label="curl" text={curl} />}
      <Copy label="Link" text={link} />
      <Copy label="Command" text={`vestige span ${id}`} />
    </div>
  );
}

/** Only a call that was recorded at the wire can be sent again. */
const isRequest = ({ span }: SpanData): boolean => "url" in span.attributes && "method" in span.attributes;

const COPY_MAX = 20_000;

async function asMarkdown(run: RunModel, index: number, data: SpanData): Promise<string> {
  const { span } = data;
  const lines = [
    `## ${span.type} ${span.name} (${span.short_id})`,
    "",
    `- run: ${run.run.name} (${run.run.short_id})`,
    `- status: ${span.status ?? "open"}, ${duration(run.duration(index)) || "never ended"}, began ${span.started_at}`,
    ...Object.entries(span.attributes).map(([name, value]) => `- ${name}: ${String(value)}`),
  ];
  for (const which of ["input", "output"] as const) {
    if (!span[which]) continue;
    const body = await readBody(span.short_id, which, COPY_MAX).catch(() => null);
    if (body) lines.push("", `### ${which}`, "", "````", body.text.slice(0, COPY_MAX), "````");
  }
  return lines.join("\n");
}

function Facts({ run, index, data }: { run: RunModel; index: number; data: SpanData }) {
  const { span } = data;
  const attributes = Object.entries(span.attributes);
  return (
    <div class="column grow scroll facts" tabIndex={0} role="region" aria-label="Facts">
      <dl>
        <Fact name="component">{visible(span.component)}</Fact>
        <Fact name="began">{moment(span.started_at)}</Fact>
        <Fact name="took">{duration(run.duration(index)) || "never ended, as far as is known"}</Fact>
        {run.model(index) && <Fact name="model">{visible(run.model(index))}</Fact>}
        {run.inputTokens(index) !== null && <Fact name="tokens">{usage(run, index)}</Fact>}
        {data.cost_usd !== null && <Fact name="cost">{cost(data.cost_usd)}</Fact>}
        {span.input?.cut && <Fact name="input">{span.input.cut}</Fact>}
        {span.output?.cut && <Fact name="output">{span.output.cut}</Fact>}
        {Object.keys(span.redacted).length > 0 && (
          <Fact name="masked">{Object.entries(span.redacted).map(([rule, times]) => `${rule} × ${times}`).join(", ")}</Fact>
        )}
        {data.parent && <Fact name="inside"><SpanButton run={run} short={data.parent} /></Fact>}
        {data.children.length > 0 && (
          <Fact name="inside it">{data.children.slice(0, 30).map((short) => <SpanButton key={short} run={run} short={short} />)}{data.children.length > 30 && ` and ${data.children.length - 30} more`}</Fact>
        )}
        {span.links.map((link, at) => (
          <Fact key={at} name={`link${link.reason ? `: ${oneLine(link.reason, 40)}` : ""}`}><LinkTo run={run} runId={link.run_id} spanId={link.span_id} /></Fact>
        ))}
        {data.linked_from.map((link, at) => (
          <Fact key={at} name={`linked from${link.reason ? `: ${oneLine(link.reason, 40)}` : ""}`}><LinkTo run={run} runId={link.run_id} spanId={link.span_id} /></Fact>
        ))}
      </dl>
      <Notes run={run.run.short_id} span={run.shortId(index)} />
      {attributes.length > 0 && (
        <table class="plain">
          <thead><tr><th>Attribute</th><th>Value</th></tr></thead>
          <tbody>
            {attributes.map(([name, value]) => (
              <tr key={name}>
                <td class="mono trace">{visible(name)}</td>
                <td class="trace"><pre class="trace">{visible(String(value))}</pre></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

function usage(run: RunModel, index: number): string {
  const told = [
    `${count(run.inputTokens(index))} in`,
    run.cacheRead(index) !== null ? `${count(run.cacheRead(index))} read from the cache` : "",
    run.cacheWrite(index) !== null ? `${count(run.cacheWrite(index))} written to it` : "",
    run.outputTokens(index) !== null ? `${count(run.outputTokens(index))} out` : "",
  ];
  return told.filter(Boolean).join(" · ");
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return <><dt>{name}</dt><dd class="trace">{children}</dd></>;
}

export function SpanButton({ run, short }: { run: RunModel; short: string }) {
  const index = run.ofShortId(short);
  if (index === undefined) return <span class="mono">{short}</span>;
  return (
    <button type="button" class="plain" onClick={() => select(run.number(index))}>
      <span class="mono">s{run.number(index)}</span> <span class="quiet">{oneLine(run.name(index), 40)}</span>
    </button>
  );
}

function LinkTo({ run, runId, spanId }: { run: RunModel; runId: string | null; spanId: string }) {
  const index = runId === null || runId === run.run.id ? run.byId.get(spanId) : undefined;
  if (index !== undefined) return <SpanButton run={run} short={run.shortId(index)} />;
  if (runId) return <a class="mono" href={href("run", runId)}>{spanId} of {runId.slice(0, 8)}</a>;
  return <span class="mono">{spanId}</span>;
}

function Why({ run, id, version }: { run: RunModel; id: string; version: string }) {
  const { data, error } = useAnswer<WhyData>("why", { id }, version);
  if (error) return <Failed error={error} />;
  if (!data) return <Loading what="the causes" />;
  return (
    <ol class="why scroll grow" tabIndex={0} aria-label="Causes">
      {data.chain.map((link, at) => (
        <li key={at}>
          <span class="quiet">{oneLine(link.relation, 30)}{link.reason ? ` (${oneLine(link.reason, 60)})` : ""} </span>
          <SpanButton run={run} short={link.short_id} />
          {link.finding && <div class="notice warn trace">{oneLine(link.finding.message, 300)}</div>}
        </li>
      ))}
    </ol>
  );
}
