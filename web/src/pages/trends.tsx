/** Trends: runs, errors, tokens, cost and durations over time, from the store's rollups. */

import { cost, count, durationMs, percent, short, upTo } from "../parts/format";
import { Spark } from "../parts/sparkline";
import type { TrendsData } from "../types";
import { useAnswer } from "../use-query";
import { mergeBuckets } from "./trend-buckets";

/** The periods of the page's time range; the server keeps days for about two years. */
const PERIODS: Record<string, { since: string; by: "hour" | "day" }> = {
  "1d": { since: "1d", by: "hour" },
  "7d": { since: "7d", by: "day" },
  "30d": { since: "30d", by: "day" },
  "": { since: "799d", by: "day" },
};
const NOTHING: Pick<TrendsData, "totals" | "unpriced_models"> = {
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
/** What the figures cover: they are counted for all runs, for at most two years. */
const scopeOf = (since: string): string =>
  `All runs${since === "" ? " of the last 26 months" : ""}, whatever the filter`;

/** `since`: the time range of the page. */
export function Trends({ since }: { since: string }) {
  const period = PERIODS[since] ?? PERIODS[""]!;
  const { data, error } = useAnswer<TrendsData>("trends", period);
  if (error) return null; // the list below shows the error
  // The section keeps its size while loading, so that nothing below it jumps.
  const { totals, unpriced_models } = data ?? NOTHING;
  const buckets = since === "" ? mergeBuckets(data?.buckets ?? []) : (data?.buckets ?? []);
  const unpriced = unpriced_models.length;
  const orLoading = (text: string): string => (data ? text : "…");
  const at = buckets.map((bucket) => bucket.at.replace("T", " "));
  const tokens = buckets.map((bucket) => bucket.input_tokens + bucket.output_tokens);
  return (
    <section class="trends" aria-label="Trends" tabIndex={0}>
      <p class="quiet trends-scope">{scopeOf(since)}</p>
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
          unpriced
            ? `Cost (${unpriced} ${unpriced === 1 ? "model" : "models"} without price)`
            : "Cost"
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
