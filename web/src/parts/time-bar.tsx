/** When something ran, within its run. */

import type { RunModel } from "../model";

interface Props {
  run: RunModel;
  /** Null: not known. */
  start_us: number | null;
  duration_us: number | null;
}

/**
 * False for a run whose times only keep the order of its spans: all have one time, as those of a bundle
 * of files, or the log that was imported has none, so that nothing takes any time.
 */
export const hasTimes = (run: RunModel): boolean =>
  run.run.outcome === "running" || (run.length_us - run.begin_us > 1 && run.run.duration_ms !== 0);

export function TimeBar({ run, start_us, duration_us }: Props) {
  if (start_us === null || !run.length_us) return <span class="time-bar" />;
  const left = Math.min(Math.max((start_us / run.length_us) * 100, 0), 98);
  const share = ((duration_us ?? 0) / run.length_us) * 100;
  const width = Math.min(Math.max(share, 1.5), 100 - left);
  return (
    <span class="time-bar" aria-hidden="true">
      <i style={{ left: `${left}%`, width: `${width}%` }} />
    </span>
  );
}
