/** The totals of a run's spans, and how a total is shown. */

import { useMemo } from "preact/hooks";
import type { RunModel } from "../model";
import { price } from "../parts/format";
import type { StepRow } from "../types";
import { useAnswer } from "../use-query";
import { rollUpSpans, type Total } from "./roll-up";

/** The steps of longer runs take seconds to compute. */
const SPANS_MAX = 20_000;
const NO_STEPS: StepRow[] = [];

export function useSpanTotals(run: RunModel): Map<number, Total> {
  const { data } = useAnswer<{ steps?: StepRow[] }>(
    "overview",
    run.count <= SPANS_MAX ? { id: run.run.short_id } : null,
    run.run.outcome,
  );
  const steps = data?.steps ?? NO_STEPS;
  return useMemo(() => rollUpSpans(run, steps), [run, steps]);
}

/** The cost of a total; empty if none of its calls has a price. */
export const priceOf = (total: Total | null | undefined): string =>
  total && (total.usd || total.complete) ? price(total.usd, total.complete) : "";
