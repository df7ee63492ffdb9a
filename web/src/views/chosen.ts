/** What the filter and the time range leave of a run, and steps through it with j and k. */

import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { select, selected, type Range } from "../state";

/** 1 for each span that has the words in what is seen of it; null: no words. `is:failed` and `is:open` are known too. */
export function matching(run: RunModel, words: string): Uint8Array | null {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return null;
  const found = new Uint8Array(run.count);
  for (let index = 0; index < run.count; index++) {
    if (wanted === "is:failed" ? run.failed(index) : wanted === "is:open" ? run.status(index) === null : has(run, index, wanted)) {
      found[index] = 1;
    }
  }
  return found;
}

function has(run: RunModel, index: number, wanted: string): boolean {
  const text = `s${run.number(index)} ${run.name(index)} ${run.type(index)} ${run.component(index)} ${run.model(index)} ${run.label(index)}`;
  return text.toLowerCase().includes(wanted);
}

/** Does any of it lie in the range? */
export function within(run: RunModel, index: number, range: Range | null): boolean {
  return range === null || (run.start(index) <= range.to_us && run.end(index) >= range.from_us);
}

export const everySpan = (run: RunModel): number[] => Array.from({ length: run.count }, (_, index) => index);

/** j and k go through these spans; the selection may be none of them. */
export function useSteps(run: RunModel, spans: number[]): void {
  const step = (by: 1 | -1): void => {
    if (!spans.length) return;
    const now = run.at(selected.peek());
    const at = now === undefined ? -1 : spans.indexOf(now);
    const next = at < 0 ? (by === 1 ? 0 : spans.length - 1) : Math.min(Math.max(at + by, 0), spans.length - 1);
    select(run.number(spans[next]!));
  };
  useKeys([
    { key: "j", say: "next row", run: () => step(1) },
    { key: "k", say: "row before", run: () => step(-1) },
  ]);
}

/** j and k go through rows that are no spans: snapshots, files. */
export function useRowKeys<T>(what: string, rows: T[], picked: T | null, pick: (row: T) => void): void {
  const step = (by: 1 | -1): void => {
    const at = picked === null ? -1 : rows.indexOf(picked);
    const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (next !== undefined) pick(next);
  };
  useKeys([
    { key: "j", say: `next ${what}`, run: () => step(1) },
    { key: "k", say: `${what} before`, run: () => step(-1) },
  ]);
}
