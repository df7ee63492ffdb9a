/** Days of the trends, joined into bars. Pure. */

import type { TrendsData } from "../types";

const BARS_MAX = 60;
export type Bucket = TrendsData["buckets"][number];

/** Leave out the time before the first run, and join days until they fit as bars. */
export function mergeBuckets(buckets: readonly Bucket[], bars_max = BARS_MAX): Bucket[] {
  const first = buckets.findIndex((bucket) => bucket.runs > 0);
  const used = buckets.slice(Math.max(0, Math.min(first, buckets.length - 7)));
  const size = Math.ceil(used.length / bars_max);
  if (size <= 1) return used;
  const bars = Array.from({ length: Math.ceil(used.length / size) }, (_, at) =>
    used.slice(at * size, (at + 1) * size),
  );
  return bars.map((days) => {
    const sum = (of: (day: Bucket) => number | null): number =>
      days.reduce((total, day) => total + (of(day) ?? 0), 0);
    // Medians of days have no median: the highest one is shown.
    const most = (of: (day: Bucket) => number | null): number | null =>
      Math.max(...days.map((day) => of(day) ?? 0)) || null;
    return {
      ...days[0]!,
      runs: sum((day) => day.runs),
      errors: sum((day) => day.errors),
      input_tokens: sum((day) => day.input_tokens),
      output_tokens: sum((day) => day.output_tokens),
      cost_usd: sum((day) => day.cost_usd),
      p50_ms: most((day) => day.p50_ms),
      p95_ms: most((day) => day.p95_ms),
    };
  });
}
