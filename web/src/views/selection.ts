/** Filter a run by text and time range, and step through the rows with j and k. */

import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { type Range, select, selected } from "../router";

/** Mark the spans whose visible text contains the words, or that match `is:failed` or `is:open`; null if no words. */
export function matching(run: RunModel, words: string): Uint8Array | null {
  const needle = words.trim().toLowerCase();
  if (!needle) return null;
  const found = new Uint8Array(run.count);
  for (let index = 0; index < run.count; index++) {
    if (
      needle === "is:failed"
        ? run.failed(index)
        : needle === "is:open"
          ? run.status(index) === null
          : has(run, index, needle)
    ) {
      found[index] = 1;
    }
  }
  return found;
}

function has(run: RunModel, index: number, needle: string): boolean {
  const text = `s${run.number(index)} ${run.name(index)} ${run.type(index)} ${run.component(index)} ${run.model(index)} ${run.label(index)}`;
  return text.toLowerCase().includes(needle);
}

/** Return true if the span overlaps the range. */
export function within(run: RunModel, index: number, range: Range | null): boolean {
  return range === null || (run.start(index) <= range.to_us && run.end(index) >= range.from_us);
}

export const everySpan = (run: RunModel): number[] =>
  Array.from({ length: run.count }, (_, index) => index);

/** Step through these spans with j and k; the selection may be another span. */
export function useSteps(run: RunModel, spans: number[]): void {
  const step = (by: 1 | -1): void => {
    if (!spans.length) return;
    const now = run.at(selected.peek());
    const at = now === undefined ? -1 : spans.indexOf(now);
    const next =
      at < 0 ? (by === 1 ? 0 : spans.length - 1) : Math.min(Math.max(at + by, 0), spans.length - 1);
    select(run.number(spans[next]!));
  };
  useKeys([
    { key: "j", label: "Next row", run: () => step(1) },
    { key: "k", label: "Previous row", run: () => step(-1) },
  ]);
}

/** Step through rows that are not spans (snapshots, files) with j and k. */
export function useRowKeys<T>(
  what: string,
  rows: T[],
  picked: T | null,
  pick: (row: T) => void,
): void {
  const step = (by: 1 | -1): void => {
    const at = picked === null ? -1 : rows.indexOf(picked);
    const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (next !== undefined) pick(next);
  };
  useKeys([
    { key: "j", label: `Next ${what}`, run: () => step(1) },
    { key: "k", label: `Previous ${what}`, run: () => step(-1) },
  ]);
}
