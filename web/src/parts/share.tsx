/** Share a run: files, a link, Markdown for an issue, print; with what leaves this machine. */

import { get } from "../api";
import type { OverviewData } from "../types";
import { useAnswer } from "../use-query";
import { Copy } from "./copy";
import { bytes, count, dateTime, durationMs, oneLine, price } from "./format";
import { Menu } from "./menu";
import { printPage } from "./virtual-list";

interface ShareData {
  spans: number;
  logs: number;
  payloads: number;
  payload_bytes: number;
  secrets_redacted: number;
  notes: number;
  files: string[];
  file_count: number;
}

const FILES: [string, string][] = [
  ["html", "HTML: the viewer with this run"],
  ["wink", "Debug bundle (.wink)"],
  ["otlp", "OpenTelemetry (OTLP/JSON)"],
  ["openwop", "OpenWOP bundle (JSON)"],
  ["json", "JSON: spans and logs, without payloads"],
];

export function Share({ run }: { run: string }) {
  return (
    <Menu label="Share" align="right" class="primary">
      {(close) => <Panel run={run} close={close} />}
    </Menu>
  );
}

function Panel({ run, close }: { run: string; close: () => void }) {
  const { data } = useAnswer<ShareData>("share", { id: run });
  return (
    <div class="choices share">
      <p class="quiet">{data ? describe(data) : "…"}</p>
      {data && data.file_count > 0 && (
        <details>
          <summary>{count(data.file_count)} files</summary>
          <ul>
            {data.files.map((path) => (
              <li key={path} class="mono trace">
                {oneLine(path, 120)}
              </li>
            ))}
            {data.file_count > data.files.length && (
              <li class="quiet">{count(data.file_count - data.files.length)} more</li>
            )}
          </ul>
        </details>
      )}
      <b>Download</b>
      {FILES.map(([format, label]) => (
        <a
          key={format}
          class="link"
          href={`/api/v1/export?id=${encodeURIComponent(run)}&format=${format}`}
          download
          onClick={close}
        >
          {label}
        </a>
      ))}
      <b>Copy</b>
      <Copy label="Link to this view" text={() => location.href} />
      <Copy label="Markdown for an issue" text={() => asMarkdown(run)} />
      <Copy label="Command" text={() => `vestige show ${run}`} />
      <button
        type="button"
        class="plain link"
        onClick={() => {
          close();
          printPage();
        }}
      >
        Print
      </button>
    </div>
  );
}

/** What a file of this run contains. */
function describe(data: ShareData): string {
  const parts = [
    `${count(data.spans)} ${data.spans === 1 ? "span" : "spans"}`,
    ...(data.logs ? [`${count(data.logs)} log lines`] : []),
    `${count(data.payloads)} payloads (${bytes(data.payload_bytes)})`,
    ...(data.notes ? [`${count(data.notes)} ${data.notes === 1 ? "note" : "notes"}`] : []),
  ];
  const secrets = data.secrets_redacted
    ? `${count(data.secrets_redacted)} secrets redacted.`
    : "No secrets found.";
  return `Contains prompts, answers and tool results: ${parts.join(", ")}. ${secrets}`;
}

const STEPS_SHOWN = 30;
type Overview = OverviewData & {
  title?: string;
  steps?: { number: number; failed: boolean; headline: string }[];
};

/** The run as Markdown: outcome, cause and steps. */
async function asMarkdown(run: string): Promise<string> {
  const data = await get<Overview>("overview", { id: run });
  const info = data.run;
  const fact = [
    info.outcome,
    durationMs(info.duration_ms),
    price(data.cost_usd, true),
    dateTime(info.started_at),
  ];
  const lines = [
    `### ${plain(data.title || info.name)} (${run})`,
    "",
    fact.filter(Boolean).join(" · "),
    "",
  ];
  for (const finding of data.findings.slice(0, 3))
    lines.push(`- **${finding.severity}** ${plain(finding.message)}`);
  const steps = data.steps ?? [];
  if (steps.length) lines.push("", "| Step | | What |", "|---|---|---|");
  for (const step of steps.slice(0, STEPS_SHOWN))
    lines.push(`| ${step.number} | ${step.failed ? "✕" : ""} | ${plain(step.headline)} |`);
  if (steps.length > STEPS_SHOWN) lines.push("", `${steps.length - STEPS_SHOWN} more steps`);
  lines.push("", `\`vestige show ${run}\``, "");
  return lines.join("\n");
}

/** Text of a trace inside Markdown: one line, nothing that is markup. */
function plain(text: string): string {
  return oneLine(text, 300).replace(/[\\`*_[\]<>|#]/g, "\\$&");
}
