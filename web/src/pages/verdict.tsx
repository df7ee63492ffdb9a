/** The verdict: outcome, the last thing before death, findings, and what is missing. Never hidden. */

import { useState } from "preact/hooks";
import { useAnswer } from "../answers";
import type { RunModel } from "../model";
import { Severity, Status } from "../parts/badges";
import { ago, cost, count, durationMs, moment, oneLine } from "../parts/format";
import { select, showView } from "../state";
import type { Losses, OverviewData } from "../types";

interface Props {
  run: RunModel;
  paused: boolean;
  pause: (on: boolean) => void;
}

type Finding = OverviewData["findings"][number];

/** More than these push the run itself off the screen. */
const NARROW = matchMedia("(max-width: 520px)");

export function Verdict({ run, paused, pause }: Props) {
  const info = run.run;
  const { data } = useAnswer<OverviewData>("overview", { id: info.short_id }, info.outcome);
  const [all, setAll] = useState(false);
  const findings = data?.findings ?? [];
  const first = NARROW.matches ? 1 : 3;
  const more = findings.length - first;
  const shown = all ? findings : findings.slice(0, first);
  const lost = missing(run.losses);
  return (
    <section class="verdict" aria-label="Verdict" tabIndex={0}>
      <div class="rowline wrap">
        <Status value={info.outcome} />
        <h1 class="trace cut">{oneLine(info.name, 120)}</h1>
        <span class="quiet mono">{info.short_id}</span>
        <span class="quiet" title={moment(info.started_at)}>{ago(info.started_at)}</span>
        <span class="quiet">{durationMs(info.duration_ms)}</span>
        <span class="quiet">{count(info.span_count)} {info.span_count === 1 ? "span" : "spans"}</span>
        {info.error_count > 0 && <span class="badge bad">✕ {count(info.error_count)} {info.error_count === 1 ? "error" : "errors"}</span>}
        {info.tokens > 0 && <span class="quiet">{count(info.tokens)} tokens</span>}
        {data?.cost_usd != null && <span class="quiet">{cost(data.cost_usd)}</span>}
        {info.outcome === "running" && (
          <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>{paused ? "Go on" : "Pause"}</button>
        )}
      </div>
      {data?.stamps.map((stamp) => <div class="notice bad trace" key={stamp}>{oneLine(stamp, 400)}</div>)}
      {findings.length > 0 && (
        <ul class="findings" aria-label="Findings">
          {shown.map((finding, at) => <Found key={at} run={run} finding={finding} />)}
        </ul>
      )}
      {(lost.length > 0 || more > 0) && (
        <div class="rowline wrap">
          {more > 0 && (
            <button type="button" class="plain link" aria-expanded={all} onClick={() => setAll(!all)}>
              {all ? "Fewer findings" : `${more} more ${more === 1 ? "finding" : "findings"}`}
            </button>
          )}
          {lost.map((text) => <span class="badge warn" key={text}>{text}</span>)}
        </div>
      )}
    </section>
  );
}

function Found({ run, finding }: { run: RunModel; finding: Finding }) {
  const cause = finding.cause ? run.byId.get(finding.cause) : undefined;
  const show = (): void => {
    showView("tree");
    select(run.number(cause!));
  };
  return (
    <li class="finding">
      <Severity value={finding.severity} />
      <span class="grow"><strong>{oneLine(finding.kind, 60)}</strong> <span class="trace">{oneLine(finding.message, 300)}</span></span>
      {cause !== undefined && <button type="button" class="plain link" onClick={show}>Show me s{run.number(cause)}</button>}
    </li>
  );
}

/** What is not as it was, in words. */
function missing(losses: Losses): string[] {
  const masked = Object.entries(losses.redactions);
  const told: [number, string][] = [
    [masked.reduce((sum, [, times]) => sum + times, 0), `masked (${masked.map(([rule]) => oneLine(rule, 40)).join(", ")})`],
    [losses.bodies_cut, "bodies cut"],
    [losses.bodies_lost, "bodies lost"],
    [losses.records_dropped, "records dropped"],
    [losses.records_missing, "records missing"],
    [losses.lines_malformed, "lines unreadable"],
  ];
  const some = told.filter(([times]) => times > 0).map(([times, what]) => `${count(times)} ${what}`);
  return losses.not_sampled ? [...some, "not sampled: only its outline was kept"] : some;
}
