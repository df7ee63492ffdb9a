/** Trends: runs, failures, tokens, cost and durations over time. */

import { useState } from "preact/hooks";
import { cost, count, durationMs, percent, price, short, upTo } from "../parts/format";
import { Spark } from "../parts/sparkline";
import type { ListData, TrendsData } from "../types";
import { useAnswer } from "../use-query";
import { mergeBuckets } from "./trend-buckets";
import { type ListOptions, totalsParams } from "./use-runs";

/** Days of the statistics that are kept after runs are deleted: about two years. */
const KEPT = { since: "799d", by: "day" };

interface Part {
  at: string;
  runs: number;
  failed: number;
  tokens: number;
  cost_usd: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
}
/** The sums of a time range, and their parts by hour or day. */
interface Sums {
  totals: Omit<Part, "at">;
  parts: Part[];
  /** Models without a price; `?`: calls without a model. */
  unpriced: string[];
}

interface Props {
  options: ListOptions;
  version: string;
}

/** The runs of the list over time; on request all runs that ever were recorded. */
export function Trends({ options, version }: Props) {
  const [kept, setKept] = useState(false);
  const listed = useAnswer<ListData>(
    "list",
    kept ? null : { ...totalsParams(options), buckets: true },
    version,
  );
  const stored = useAnswer<TrendsData>("trends", kept ? KEPT : null);
  const error = kept ? stored.error : listed.error;
  if (error) return null; // the list shows the error
  const data = kept ? ofStatistics(stored.data) : ofList(listed.data);
  const loading = kept ? stored.loading : listed.loading;
  const parts = data?.parts ?? [];
  const totals = data?.totals;
  const unpriced = data?.unpriced ?? [];
  const named = unpriced.filter((model) => model !== "?").length;
  // The section keeps its size while loading, so that nothing below it jumps.
  const orLoading = (text: (sums: Sums["totals"]) => string): string =>
    totals && !loading ? text(totals) : "…";
  // Of deleted runs, only a histogram of durations is left.
  const took = kept ? upTo : (ms: number | null): string => durationMs(ms) || "–";
  const at = parts.map((part) => part.at.replace("T", " "));
  return (
    <section class="trends" aria-label="Trends" tabIndex={0}>
      <p class="quiet trends-scope rowline wrap">
        <span>
          {kept
            ? "All runs of the last 26 months, also deleted ones, whatever the filter and the time range"
            : "The runs of the list, by the time they started (UTC)"}
        </span>
        <button type="button" aria-pressed={kept} onClick={() => setKept(!kept)}>
          Include deleted runs
        </button>
      </p>
      <Spark
        title="Runs"
        total={orLoading((sums) => count(sums.runs))}
        at={at}
        values={parts.map((one) => one.runs)}
        format={count}
      />
      <Spark
        title="Failed"
        total={orLoading((sums) =>
          sums.runs ? `${count(sums.failed)} · ${percent(sums.failed / sums.runs)}` : "0",
        )}
        at={at}
        values={parts.map((one) => one.failed)}
        format={count}
        mood="bad"
      />
      <Spark
        title="Tokens"
        total={orLoading((sums) => short(sums.tokens))}
        at={at}
        values={parts.map((one) => one.tokens)}
        format={count}
      />
      <Spark
        title={named ? `Cost (${named} ${named === 1 ? "model" : "models"} without price)` : "Cost"}
        total={orLoading((sums) => price(sums.cost_usd, unpriced.length === 0) || "–")}
        at={at}
        values={parts.map((one) => one.cost_usd)}
        format={cost}
      />
      <Spark
        title="Duration (median, p95)"
        total={orLoading((sums) => `${took(sums.p50_ms)} · ${took(sums.p95_ms)}`)}
        at={at}
        values={parts.map((one) => one.p50_ms)}
        upper={parts.map((one) => one.p95_ms)}
        format={(value) => durationMs(value)}
      />
    </section>
  );
}

function ofList(data: ListData | null): Sums | null {
  if (!data?.totals || !data.buckets) return null;
  return { totals: data.totals, parts: data.buckets, unpriced: data.totals.unpriced_models };
}

function ofStatistics(data: TrendsData | null): Sums | null {
  if (!data) return null;
  const renamed = (sums: TrendsData["totals"]) => ({
    ...sums,
    failed: sums.errors,
    tokens: sums.input_tokens + sums.output_tokens,
  });
  const parts = mergeBuckets(data.buckets).map((bucket) => ({ ...renamed(bucket), at: bucket.at }));
  return { totals: renamed(data.totals), parts, unpriced: data.unpriced_models };
}
