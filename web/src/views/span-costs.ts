/** The cost of each span: that of its step, and of all steps inside it. */

import { useMemo } from "preact/hooks";
import type { RunModel } from "../model";
import { useAnswer } from "../use-query";

interface PricedStep {
  /** `r7.s12`; null: the step has no span. */
  span: string | null;
  /** Without the steps of sub-agents, which have their own. */
  cost_usd: number | null;
}

/** The steps of longer runs take seconds to compute. */
const SPANS_MAX = 20_000;

/** Add each step's own cost to its span and all ancestors, so that none counts twice. */
export function rollUpCosts(run: RunModel, steps: readonly PricedStep[]): Map<number, number> {
  const costs = new Map<number, number>();
  for (const step of steps) {
    if (!step.cost_usd) continue;
    const seen = new Set<number>();
    let at: number | null = run.ofShortId(step.span) ?? null;
    while (at !== null && !seen.has(at)) {
      seen.add(at);
      costs.set(at, (costs.get(at) ?? 0) + step.cost_usd);
      at = run.parent(at);
    }
  }
  return costs;
}

export function useSpanCosts(run: RunModel): Map<number, number> {
  const { data } = useAnswer<{ steps?: PricedStep[] }>(
    "overview",
    run.count <= SPANS_MAX ? { id: run.run.short_id } : null,
    run.run.outcome,
  );
  return useMemo(() => rollUpCosts(run, data?.steps ?? []), [run, data]);
}
