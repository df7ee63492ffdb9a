/** Costs of spans and steps with all that is inside them; each model call counts once. */

import { useMemo } from "preact/hooks";
import type { RunModel } from "../model";
import type { StepRow } from "../types";
import { useAnswer } from "../use-query";

export interface Total {
  usd: number;
  /** False: some calls have no price. */
  complete: boolean;
}
type PricedStep = Pick<
  StepRow,
  "number" | "span" | "parent" | "cost_usd" | "input_tokens" | "output_tokens"
>;

/** The steps of longer runs take seconds to compute. */
const SPANS_MAX = 20_000;

/** The cost of a step's own model call; null if it had none that costs. */
function costOf(step: PricedStep): Total | null {
  if (step.cost_usd !== null) return { usd: step.cost_usd, complete: true };
  const hasTokens = Boolean(step.input_tokens || step.output_tokens);
  return hasTokens ? { usd: 0, complete: false } : null;
}

function add<K>(totals: Map<K, Total>, key: K, own: Total): void {
  const before = totals.get(key);
  totals.set(key, {
    usd: (before?.usd ?? 0) + own.usd,
    complete: (before?.complete ?? true) && own.complete,
  });
}

/** Add each step's own cost to its span and all ancestors. */
export function rollUpCosts(run: RunModel, steps: readonly PricedStep[]): Map<number, Total> {
  const totals = new Map<number, Total>();
  for (const step of steps) {
    const own = costOf(step);
    if (!own) continue;
    const seen = new Set<number>();
    let at: number | null = run.ofShortId(step.span) ?? null;
    while (at !== null && !seen.has(at)) {
      seen.add(at);
      add(totals, at, own);
      at = run.parent(at);
    }
  }
  return withoutUnknown(totals);
}

/** Add each step's own cost to it and to the steps that called its agent, by number. */
export function rollUpSteps(steps: readonly PricedStep[]): Map<number, Total> {
  const parents = new Map(steps.map((step) => [step.number, step.parent]));
  const totals = new Map<number, Total>();
  for (const step of steps) {
    const own = costOf(step);
    if (!own) continue;
    const seen = new Set<number>();
    let at: number | null | undefined = step.number;
    while (at != null && !seen.has(at)) {
      seen.add(at);
      add(totals, at, own);
      at = parents.get(at);
    }
  }
  return withoutUnknown(totals);
}

/** Leave out what has no known cost at all: "$0+" says nothing. */
function withoutUnknown<K>(totals: Map<K, Total>): Map<K, Total> {
  for (const [key, total] of totals) if (!total.usd && !total.complete) totals.delete(key);
  return totals;
}

/** The sum of the steps with these numbers. */
export function sumOf(
  totals: ReadonlyMap<number, Total>,
  numbers: readonly number[],
): Total | null {
  const known = new Map<"", Total>();
  for (const number of new Set(numbers)) {
    const total = totals.get(number);
    if (total) add(known, "", total);
  }
  return known.get("") ?? null;
}

const NO_STEPS: StepRow[] = [];

export function useSpanCosts(run: RunModel): Map<number, Total> {
  const { data } = useAnswer<{ steps?: StepRow[] }>(
    "overview",
    run.count <= SPANS_MAX ? { id: run.run.short_id } : null,
    run.run.outcome,
  );
  const steps = data?.steps ?? NO_STEPS;
  return useMemo(() => rollUpCosts(run, steps), [run, steps]);
}
