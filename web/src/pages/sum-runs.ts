/** The sum of some runs of the list. Pure. */

import type { RunRow } from "../types";

export interface RunSum {
  runs: number;
  calls: number;
  tokens: number;
  /** Null: none of the runs has a known cost. */
  cost_usd: number | null;
  /** False: some calls have no price, so the cost is higher. */
  complete: boolean;
}

export function sumRuns(runs: readonly RunRow[]): RunSum {
  const priced = runs.filter((run) => run.cost_usd != null);
  return {
    runs: runs.length,
    calls: runs.reduce((sum, run) => sum + (run.model_calls ?? 0), 0),
    tokens: runs.reduce((sum, run) => sum + run.tokens, 0),
    cost_usd: priced.length ? priced.reduce((sum, run) => sum + run.cost_usd!, 0) : null,
    complete: runs.every(
      (run) => run.cost_complete !== false && (run.cost_usd != null || !run.model_calls),
    ),
  };
}
