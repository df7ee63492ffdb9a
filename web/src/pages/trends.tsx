/** Trends: runs, errors, tokens, cost and durations over time, from the store's rollups. */

import { cost, count, durationMs, percent, short, upTo } from "../parts/format";
import { Spark } from "../parts/sparkline";
import type { TrendsData } from "../types";
import { useAnswer } from "../use-query";

const SPANS = [
  { label: "24 h", since: "1d", by: "hour" },
  { label: "7 days", since: "7d", by: "day" },
  { label: "30 days", since: "30d", by: "day" },
  { label: "1 year", since: "365d", by: "day" },
] as const;
const NOTHING: Pick<TrendsData, "buckets" | "totals" | "unpriced_models"> = {
  buckets: [],
  totals: {
    runs: 0,
    errors: 0,
    input_tokens: 0,
    output_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    cost_usd: null,
    p50_ms: null,
    p95_ms: null,
  },
  unpriced_models: [],
};
export type Span = (typeof SPANS)[number]["label"];

export function Trends({ span, onSpan }: { span: Span; onSpan: (span: Span) => void }) {
  const chosen = SPANS.find((one) => one.label === span) ?? SPANS[2];
  const { data, error } = useAnswer<TrendsData>("trends", { since: chosen.since, by: chosen.by });
  if (error) return null; // the list below shows the error
  // The section keeps its size while loading, so that nothing below it jumps.
  const { buckets, totals, unpriced_models } = data ?? NOTHING;
  const orLoading = (text: string): string => (data ? text : "…");
  const at = buckets.map((bucket) => bucket.at.replace("T", " "));
  const tokens = buckets.map((bucket) => bucket.input_tokens + bucket.output_tokens);
  return (
    <section class="trends" aria-label="Trends">
      <div class="trends-pick" role="group" aria-label="Time range">
        {SPANS.map((one) => (
          <button
            key={one.label}
            type="button"
            aria-pressed={one.label === chosen.label}
            onClick={() => onSpan(one.label)}
          >
            {one.label}
          </button>
        ))}
      </div>
      <Spark
        title="Runs"
        total={orLoading(count(totals.runs))}
        at={at}
        values={buckets.map((one) => one.runs)}
        format={count}
      />
      <Spark
        title="Failed"
        total={orLoading(
          totals.runs ? `${count(totals.errors)} · ${percent(totals.errors / totals.runs)}` : "0",
        )}
        at={at}
        values={buckets.map((one) => one.errors)}
        format={count}
        mood="bad"
      />
      <Spark
        title="Tokens"
        total={orLoading(short(totals.input_tokens + totals.output_tokens))}
        at={at}
        values={tokens}
        format={count}
      />
      <Spark
        title={
          unpriced_models.length ? `Cost (${unpriced_models.length} models without price)` : "Cost"
        }
        total={cost(totals.cost_usd) || "–"}
        at={at}
        values={buckets.map((one) => one.cost_usd)}
        format={cost}
      />
      <Spark
        title="Duration (median, p95)"
        total={`${upTo(totals.p50_ms)} · ${upTo(totals.p95_ms)}`}
        at={at}
        values={buckets.map((one) => one.p50_ms)}
        upper={buckets.map((one) => one.p95_ms)}
        format={(value) => durationMs(value)}
      />
    </section>
  );
}
