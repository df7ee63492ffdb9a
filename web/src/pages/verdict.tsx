/** The verdict: outcome, the last thing before death, findings, and what is missing. Never hidden. */

import { useAnswer } from "../answers";
import type { RunModel } from "../model";
import { Severity, Status } from "../parts/badges";
import { ago, cost, count, durationMs, moment, oneLine } from "../parts/format";
import { select, showView } from "../state";
import type { OverviewData } from "../types";

interface Props {
  run: RunModel;
  paused: boolean;
  pause: (on: boolean) => void;
}

export function Verdict({ run, paused, pause }: Props) {
  const info = run.run;
  const { data } = useAnswer<OverviewData>("overview", { id: info.short_id });
  const lost = Object.entries(run.losses ?? {}).filter(([, value]) => (typeof value === "object" ? Object.keys(value).length : value));
  return (
    <section class="verdict" aria-label="Verdict">
      <div class="rowline wrap">
        <Status value={info.outcome} />
        <h1 class="trace cut">{oneLine(info.name, 120)}</h1>
        <span class="quiet mono">{info.short_id}</span>
        <span class="quiet" title={moment(info.started_at)}>{ago(info.started_at)}</span>
        <span class="quiet">{durationMs(info.duration_ms)}</span>
        <span class="quiet">{count(info.span_count)} spans</span>
        {info.error_count > 0 && <span class="badge bad">✕ {count(info.error_count)} failed</span>}
        {info.tokens > 0 && (
          <span class="quiet">{count(info.tokens)} tokens</span>
        )}
        {data?.cost_usd != null && <span class="quiet">{cost(data.cost_usd)}</span>}
        {info.outcome === "running" && (
          <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>{paused ? "Go on" : "Pause"}</button>
        )}
      </div>
      {data?.stamps.map((stamp) => <div class="notice bad trace" key={stamp}>{oneLine(stamp, 400)}</div>)}
      {data?.findings.slice(0, 7).map((finding, at) => {
        const cause = finding.cause ? run.byId.get(finding.cause) : undefined;
        return (
          <div class="finding rowline wrap" key={at}>
            <Severity value={finding.severity} />
            <strong>{oneLine(finding.kind, 60)}</strong>
            <span class="trace">{oneLine(finding.message, 300)}</span>
            {cause !== undefined && (
              <button type="button" class="plain link" onClick={() => { showView("tree"); select(run.number(cause)); }}>
                Show me s{run.number(cause)}
              </button>
            )}
          </div>
        );
      })}
      {lost.length > 0 && (
        <div class="quiet">{lost.map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : String(value)}`).join(" · ")}</div>
      )}
    </section>
  );
}
