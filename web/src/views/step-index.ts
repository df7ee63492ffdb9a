/** The steps of a run, and which step each span belongs to. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunModel } from "../model";
import type { OverviewData, StepRow } from "../types";
import { type Asked, useAnswer } from "../use-query";

export class StepIndex {
  private readonly bySpan = new Map<string, StepRow>();

  constructor(readonly steps: StepRow[]) {
    for (const step of steps) {
      for (const span of spansOf(step)) if (!this.bySpan.has(span)) this.bySpan.set(span, step);
    }
  }

  /** The step of a span's short id. */
  of(span: string | null | undefined): StepRow | undefined {
    return span ? this.bySpan.get(span) : undefined;
  }
}

/** A name that numbers steps, which frameworks do for each agent from 1. */
const NUMBERED = /^step[ _#-]?\d+$/i;

/**
 * The name of a span as the page shows it: one that only numbers a step has the number of that step
 * in the run, so that all views have the same numbers.
 */
export function spanTitle(run: RunModel, index: number, steps: StepIndex): string {
  const name = run.name(index);
  const step = NUMBERED.test(name) ? steps.of(run.shortId(index)) : undefined;
  return step ? `Step ${step.number}` : name;
}

/** The recorded name of a span, if the page shows another one. */
export function recordedName(run: RunModel, index: number, steps: StepIndex): string {
  return spanTitle(run, index, steps) === run.name(index) ? "" : run.name(index);
}

export function spansOf(step: StepRow): string[] {
  const actions = step.actions.flatMap((action) => (action.span ? [action.span] : []));
  return [...(step.span ? [step.span] : []), ...actions, ...step.spans];
}

/** The span to open for a step: the action that failed, else its model call. */
export function mainSpan(step: StepRow): string | null {
  const failed = step.actions.find((action) => action.error !== null && action.span !== null);
  const first = step.actions.find((action) => action.span !== null);
  return (
    (step.error === null ? failed?.span : null) ?? step.span ?? first?.span ?? step.spans[0] ?? null
  );
}

/** A live run has a new overview at most this often: its checks cost more than its rows. */
const AGAIN_MS = 2_000;

/** The overview of a run; while the run is live, read again as it grows. */
export function useOverview(run: RunModel): Asked<OverviewData> {
  const isLive = run.run.outcome === "running";
  const [version, setVersion] = useState(run.next);
  const timer = useRef(0);
  const latest = useRef(run.next);
  latest.current = run.next;
  useEffect(() => {
    if (!isLive || timer.current || version === run.next) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      setVersion(latest.current);
    }, AGAIN_MS);
  }, [isLive, run.next, version]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useAnswer<OverviewData>(
    "overview",
    { id: run.run.short_id },
    isLive ? version : run.run.outcome,
  );
}

export function useStepIndex(overview: OverviewData | null): StepIndex {
  return useMemo(() => new StepIndex(overview?.steps ?? []), [overview]);
}
