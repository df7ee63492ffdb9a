/** How it went lately: runs, errors, tokens, cost, durations over time, from the store's rollups. */

import { useAnswer } from "../answers";
import { Spark } from "../parts/spark";
import { cost, count, durationMs, percent, short } from "../parts/format";
import type { TrendsData } from "../types";

const SPANS = [
  { label: "Day", since: "1d", by: "hour" },
  { label: "Week", since: "7d", by: "day" },
  { label: "Month", since: "30d", by: "day" },
] as const;
const NOTHING: Pick<TrendsData, "buckets" | "totals" | "unpriced_models"> = {
  buckets: [],
  totals: { runs: 0, errors: 0, input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0, cost_usd: null, p50_ms: null, p95_ms: null },
  unpriced_models: [],
};
export type Span = (typeof SPANS)[number]["label"];

export function Trends({ span, onSpan }: { span: Span; onSpan: (span: Span) => void }) {
  const chosen = SPANS.find((one) => one.label === span) ?? SPANS[2];
  const { data, error } = useAnswer<TrendsData>("trends", { since: chosen.since, by: chosen.by });
  if (error) return null; // the list below says what is wrong, if something is
  // Its place is kept while it is on its way: nothing below may jump.
  const { buckets, totals, unpriced_models } = data ?? NOTHING;
  const told = (text: string): string => (data ? text : "…");
  const at = buckets.map((bucket) => bucket.at.replace("T", " "));
  const tokens = buckets.map((bucket) => bucket.input_tokens + bucket.output_tokens);
  return (
    <section class="trends" aria-label="Lately">
      <div class="trends-pick" role="group" aria-label="How far back">
        {SPANS.map((one) => (
          <button key={one.label} type="button" aria-pressed={one.label === chosen.label} onClick={() => onSpan(one.label)}>
            {one.label}
          </button>
        ))}
      </div>
      <Spark title="Runs" total={told(count(totals.runs))} at={at} values={buckets.map((one) => one.runs)} tell={count} />
      <Spark title="Failed" total={told(totals.runs ? `${count(totals.errors)} · ${percent(totals.errors / totals.runs)}` : "0")} at={at}
        values={buckets.map((one) => one.errors)} tell={count} mood="bad" />
      <Spark title="Tokens" total={told(short(totals.input_tokens + totals.output_tokens))} at={at} values={tokens} tell={count} />
      <Spark title={unpriced_models.length ? `Cost, ${unpriced_models.length} models unpriced` : "Cost"}
        total={cost(totals.cost_usd) || "–"} at={at} values={buckets.map((one) => one.cost_usd)} tell={cost} />
      <Spark title="Duration p50, p95" total={`${durationMs(totals.p50_ms) || "–"} · ${durationMs(totals.p95_ms) || "–"}`} at={at}
        values={buckets.map((one) => one.p50_ms)} upper={buckets.map((one) => one.p95_ms)} tell={(value) => durationMs(value)} />
    </section>
  );
}
