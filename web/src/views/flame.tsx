/** The flame view: time by call path; and the totals of a time range. */

import { useMemo } from "preact/hooks";
import type { RunModel } from "../model";
import { kindClass } from "../parts/badges";
import { count, duration, oneLine, percent, price, short } from "../parts/format";
import { select } from "../router";
import type { OverviewData } from "../types";
import { useAnswer } from "../use-query";
import { addUp, mergeSpans } from "./flame-tree";
import type { Window_ } from "./timeline-canvas";

const BAR = 20;
/** The steps of longer runs, which have the costs, take seconds to compute. */
const PRICED_SPANS_MAX = 20_000;

export function Flame({ run, range }: { run: RunModel; range: Window_ }) {
  const bars = useMemo(() => mergeSpans(run, range), [run, range.from_us, range.to_us]);
  const depth = Math.max(0, ...bars.map((bar) => bar.depth));
  const total = bars.filter((bar) => bar.depth === 0).reduce((sum, bar) => sum + bar.total_us, 0);
  return (
    <div class="flame scroll" role="group" aria-label="Time by call path" tabIndex={0}>
      <div style={{ position: "relative", height: `${(depth + 1) * BAR}px` }}>
        {bars.map((bar, at) => (
          <button
            key={at}
            type="button"
            class={`flame-bar ${kindClass(bar.type)} ${bar.failed ? "has-failed" : ""}`}
            style={{
              left: `${bar.left * 100}%`,
              width: `${bar.width * 100}%`,
              top: `${bar.depth * BAR}px`,
            }}
            title={`${oneLine(bar.name, 100)}: ${duration(bar.total_us)} (${percent(bar.total_us / Math.max(1, total))}), ${count(bar.count)} ${bar.count === 1 ? "span" : "spans"}${bar.failed ? `, ${count(bar.failed)} failed` : ""}`}
            onClick={() => select(run.number(bar.longest))}
          >
            {oneLine(bar.name, 60)}
            {bar.count > 1 ? ` ×${bar.count}` : ""}
          </button>
        ))}
      </div>
    </div>
  );
}

type PricedSteps = OverviewData & {
  steps?: { started_ns: number; cost_usd: number | null }[];
};

/** Spans, calls, tokens and cost inside a range. */
export function RangeTotals(props: { run: RunModel; range: Window_; measured: boolean }) {
  const { run, range } = props;
  const totals = useMemo(() => addUp(run, range), [run, range.from_us, range.to_us]);
  const { data } = useAnswer<PricedSteps>(
    "overview",
    run.count <= PRICED_SPANS_MAX ? { id: run.run.short_id } : null,
    run.run.outcome,
  );
  const spent = useMemo(() => {
    const begin_us = Date.parse(run.run.started_at) * 1000;
    let sum: number | null = null;
    for (const step of data?.steps ?? []) {
      const at_us = step.started_ns / 1000 - begin_us;
      if (step.cost_usd !== null && at_us >= range.from_us && at_us <= range.to_us)
        sum = (sum ?? 0) + step.cost_usd;
    }
    return sum;
  }, [data, range.from_us, range.to_us]);
  const parts = [
    props.measured ? duration(range.to_us - range.from_us) : "",
    `${count(totals.spans)} ${totals.spans === 1 ? "span" : "spans"}`,
    totals.failed ? `${count(totals.failed)} failed` : "",
    totals.calls ? `${count(totals.calls)} model calls` : "",
    totals.tools ? `${count(totals.tools)} tool calls` : "",
    totals.tokens ? `${short(totals.tokens)} tokens` : "",
    spent !== null ? price(spent, true) : "",
  ];
  return (
    <span class={props.measured ? "measured" : "quiet"} role="status">
      {parts.filter(Boolean).join(" · ")}
    </span>
  );
}
