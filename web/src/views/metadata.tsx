/** Metadata of a run: facts, contents, passed checks, process, recording gaps. */

import type { RunModel } from "../model";
import { Status } from "../parts/badges";
import { Copy } from "../parts/copy";
import { count, duration, moment, oneLine, short, visible } from "../parts/format";
import { Notes } from "../parts/notes";
import { Failed, Loading } from "../parts/placeholders";
import { href } from "../router";
import type { Losses, OverviewData, SpanData, StepRow } from "../types";
import { useAnswer } from "../use-query";
import { sumByAgent } from "./roll-up";
import { costOf } from "./run-summary";
import { priceOf } from "./use-span-totals";
import type { ViewProps } from "./view-props";
import "./split.css";

/** The error is shown as the cause of the run, and with the span that failed. */
const IN_ERROR = /^(error|exception)\.(type|message|stack|stacktrace)$/;

export default function Metadata({ run }: ViewProps) {
  const id = run.run.short_id;
  const { data, error, again } = useAnswer<OverviewData>("overview", { id }, run.run.outcome);
  const root = run.roots[0];
  const about = useAnswer<SpanData>(
    "span",
    root === undefined ? null : { id: run.shortId(root) },
    run.run.outcome,
  );
  if (error) return <Failed error={error} again={again} />;
  if (!data) return <Loading />;
  const own = Object.fromEntries(
    Object.entries(about.data?.span.attributes ?? {}).filter(
      ([name, value]) => data.common_attributes[name] !== value && !IN_ERROR.test(name),
    ),
  );
  const process = processOf(run);
  const gaps = recordingGaps(run.losses);
  return (
    <div class="scroll grow metadata" tabIndex={0} role="region" aria-label="Metadata">
      <Card title="Run">
        <dl>
          <dt>ID</dt>
          <dd class="mono">
            {run.run.id} <Copy text={run.run.id} />
          </dd>
          <dt>Outcome</dt>
          <dd>
            <Status value={run.run.outcome} />
          </dd>
          <dt>Started</dt>
          <dd>{moment(run.run.started_at)}</dd>
          {run.run.ended_at && (
            <>
              <dt>Ended</dt>
              <dd>{moment(run.run.ended_at)}</dd>
            </>
          )}
          <dt>Duration</dt>
          <dd>
            {run.run.duration_ms === null ? "Still running" : duration(run.run.duration_ms * 1000)}
          </dd>
          {run.run.conversation_id && (
            <>
              <dt>Conversation</dt>
              <dd>
                <a
                  class="trace"
                  href={href("home", "", { q: `conversation:"${run.run.conversation_id}"` })}
                >
                  {visible(run.run.conversation_id)}
                </a>
              </dd>
            </>
          )}
          {run.run.component && (
            <>
              <dt>Service</dt>
              <dd class="trace">{visible(run.run.component)}</dd>
            </>
          )}
          <dt>Tokens</dt>
          <dd>
            {count(run.run.input_tokens)} in, {count(run.run.output_tokens)} out
          </dd>
          <dt>Cost</dt>
          <dd>{costOf(data) || "Unknown"}</dd>
        </dl>
        <Notes run={id} />
      </Card>
      <Card title="Contents">
        <table class="plain">
          <tbody>
            {Object.entries(data.types)
              .sort((a, b) => b[1] - a[1])
              .map(([type, times]) => (
                <tr key={type}>
                  <td class="trace">{visible(type)}</td>
                  <td class="right">{count(times)}</td>
                </tr>
              ))}
            <tr>
              <td>log lines</td>
              <td class="right">{count(run.logCount)}</td>
            </tr>
          </tbody>
        </table>
      </Card>
      <Agents steps={data.steps} />
      {data.good_run && (
        <Card title="Last successful run">
          <p>
            <a href={href("run", data.good_run.short_id)}>{data.good_run.short_id}</a>{" "}
            <span class="quiet">{moment(data.good_run.started_at)}</span>{" "}
            <a class="button" href={href("compare", "", { a: data.good_run.short_id, b: id })}>
              Compare
            </a>
          </p>
        </Card>
      )}
      {Object.keys(own).length > 0 && (
        <Card title="Attributes">
          <Pairs of={own} />
        </Card>
      )}
      {Object.keys(data.common_attributes).length > 0 && (
        <Card title="On every span">
          <Pairs of={data.common_attributes} />
        </Card>
      )}
      {process !== undefined && process !== root && <Process run={run} index={process} />}
      <Card title={`Passed checks (${count(data.passed.length)})`}>
        <details>
          <summary>Show their names</summary>
          <p class="quiet">{data.passed.map((name) => oneLine(name, 60)).join(" · ") || "none"}</p>
        </details>
      </Card>
      {Object.keys(gaps).length > 0 && (
        <Card title="Recording gaps">
          <Pairs of={gaps} />
        </Card>
      )}
    </div>
  );
}

function Process({ run, index }: { run: RunModel; index: number }) {
  const { data } = useAnswer<SpanData>("span", { id: run.shortId(index) }, run.run.outcome);
  return data ? (
    <Card title="Process">
      <Pairs of={data.span.attributes} />
    </Card>
  ) : null;
}

function processOf(run: RunModel): number | undefined {
  for (let index = 0; index < run.count; index++) if (run.type(index) === "process") return index;
  return undefined;
}

/** Count what was redacted, truncated or lost, leaving out zeros. */
function recordingGaps(losses: Losses): Record<string, number | boolean> {
  const counts = Object.entries(losses).filter(
    ([, value]) => typeof value !== "object" && value,
  ) as [string, number | boolean][];
  return Object.fromEntries([
    ...counts.map(([name, value]) => [name.replaceAll("_", " "), value]),
    ...Object.entries(losses.redactions).map(([rule, times]) => [`redacted: ${rule}`, times]),
  ]);
}

export function Card({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <section class="panel card">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** Characters of a value of several lines, such as a traceback. */
const PAIR_SHOWN = 4_000;

export function Pairs({ of }: { of: Record<string, unknown> }) {
  return (
    <table class="plain">
      <tbody>
        {Object.entries(of).map(([name, value]) => (
          <tr key={name}>
            <td class="trace quiet">{visible(name)}</td>
            <td class="trace">
              {String(value).includes("\n") ? (
                <pre class="trace">{visible(String(value).trim().slice(0, PAIR_SHOWN))}</pre>
              ) : (
                oneLine(String(value), 600)
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What each agent's own model calls took; nothing for a run of one agent. */
function Agents({ steps }: { steps: StepRow[] }) {
  const agents = sumByAgent(steps);
  if (agents.length < 2) return null;
  return (
    <Card title="Agents">
      <table class="plain">
        <thead>
          <tr>
            <th>Agent</th>
            <th class="right">Steps</th>
            <th class="right">Tokens</th>
            <th class="right">Cost</th>
            <th class="right">Duration</th>
          </tr>
        </thead>
        <tbody>
          {agents.map((each) => (
            <tr key={each.agent}>
              <td class="trace">{oneLine(each.agent, 80) || "Without an agent"}</td>
              <td class="right">{count(each.steps)}</td>
              <td class="right">{each.tokens ? short(each.tokens) : ""}</td>
              <td class="right nowrap">{priceOf(each)}</td>
              <td class="right nowrap">{duration(each.duration_ns / 1_000)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
