/** The totals of the runs that match the filter and the time range. */

import { count, durationMs, percent, price, short } from "../parts/format";
import type { ListData } from "../types";
import { useAnswer } from "../use-query";
import type { ListOptions } from "./use-runs";
import { totalsParams } from "./use-runs";

interface Props {
  options: ListOptions;
  version: string;
  /** True while the runs of another filter are shown. */
  stale: boolean;
}

export function Totals({ options, version, stale }: Props) {
  const { data, loading } = useAnswer<ListData>("list", totalsParams(options), version);
  const totals = data?.totals;
  if (stale || (loading && totals))
    return (
      <div class="totals quiet" role="status">
        Searching…
      </div>
    );
  if (!totals) return <div class="totals quiet">…</div>;
  const unpriced = totals.unpriced_models.length;
  const known = totals.unpriced_models.filter((model) => model !== "?");
  return (
    <div class="totals" role="status" aria-label="Totals">
      <span>
        <b>{count(totals.runs)}</b>
        {totals.complete ? "" : "+"} {totals.runs === 1 ? "run" : "runs"}
      </span>
      {totals.failed > 0 && (
        <span>
          <b class="bad">{count(totals.failed)} failed</b>{" "}
          <span class="quiet">({percent(totals.failed / totals.runs)})</span>
        </span>
      )}
      {totals.running > 0 && (
        <span>
          <b>{count(totals.running)}</b> running
        </span>
      )}
      {totals.tokens > 0 && (
        <span>
          <b>{short(totals.tokens)}</b> tokens
        </span>
      )}
      {totals.cost_usd !== null && (
        <span title={known.length ? `Without a price: ${known.join(", ")}` : ""}>
          <b>{price(totals.cost_usd, unpriced === 0)}</b>
          {unpriced > 0 && (
            <span class="quiet">
              {" "}
              ·{" "}
              {known.length
                ? `${known.length} ${known.length === 1 ? "model has" : "models have"} no price`
                : "some calls have no price"}
            </span>
          )}
          {totals.runs > 1 && (
            <span class="quiet"> · {price(totals.cost_usd / totals.runs, true)} per run</span>
          )}
        </span>
      )}
      {totals.p50_ms !== null && (
        <span>
          median <b>{durationMs(totals.p50_ms)}</b>, p95 <b>{durationMs(totals.p95_ms)}</b>
        </span>
      )}
    </div>
  );
}
