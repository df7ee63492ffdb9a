/** Tokens and costs of spans and steps with all that is inside them; each model call counts once. Pure. */

import type { RunModel } from "../model";
import type { StepRow } from "../types";

export interface Total {
  usd: number;
  /** False: some calls have no price. */
  complete: boolean;
  tokens: number;
}
type CountedStep = Pick<
  StepRow,
  "number" | "span" | "parent" | "cost_usd" | "input_tokens" | "output_tokens"
>;

/** The total of a step's own model call; null if it had none. */
function totalOf(step: CountedStep): Total | null {
  const tokens = (step.input_tokens ?? 0) + (step.output_tokens ?? 0);
  if (step.cost_usd !== null) return { usd: step.cost_usd, complete: true, tokens };
  return tokens ? { usd: 0, complete: false, tokens } : null;
}

function add<K>(totals: Map<K, Total>, key: K, own: Total): void {
  const before = totals.get(key);
  totals.set(key, {
    usd: (before?.usd ?? 0) + own.usd,
    complete: (before?.complete ?? true) && own.complete,
    tokens: (before?.tokens ?? 0) + own.tokens,
  });
}

/** Add each step's own total to its span and all ancestors. */
export function rollUpSpans(run: RunModel, steps: readonly CountedStep[]): Map<number, Total> {
  const totals = new Map<number, Total>();
  for (const step of steps) {
    const own = totalOf(step);
    if (!own) continue;
    const seen = new Set<number>();
    let at: number | null = run.ofShortId(step.span) ?? null;
    while (at !== null && !seen.has(at)) {
      seen.add(at);
      add(totals, at, own);
      at = run.parent(at);
    }
  }
  return totals;
}

/** Add each step's own total to it and to the steps that called its agent, by number. */
export function rollUpSteps(steps: readonly CountedStep[]): Map<number, Total> {
  const parents = new Map(steps.map((step) => [step.number, step.parent]));
  const totals = new Map<number, Total>();
  for (const step of steps) {
    const own = totalOf(step);
    if (!own) continue;
    const seen = new Set<number>();
    let at: number | null | undefined = step.number;
    while (at != null && !seen.has(at)) {
      seen.add(at);
      add(totals, at, own);
      at = parents.get(at);
    }
  }
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

export interface AgentTotal extends Total {
  agent: string;
  steps: number;
  duration_ns: number;
}

/** The totals of each agent's own model calls, without those of its sub-agents. */
export function sumByAgent(steps: readonly StepRow[]): AgentTotal[] {
  const agents = new Map<string, AgentTotal>();
  for (const step of steps) {
    const agent = step.agent ?? "";
    const before = agents.get(agent);
    const own = totalOf(step);
    agents.set(agent, {
      agent,
      steps: (before?.steps ?? 0) + 1,
      duration_ns: (before?.duration_ns ?? 0) + (step.duration_ns ?? 0),
      usd: (before?.usd ?? 0) + (own?.usd ?? 0),
      complete: (before?.complete ?? true) && (own?.complete ?? true),
      tokens: (before?.tokens ?? 0) + (own?.tokens ?? 0),
    });
  }
  return [...agents.values()];
}
