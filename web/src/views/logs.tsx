/** The log of a run. */

import { Level } from "../parts/badges";
import { offset, oneLine } from "../parts/format";
import { VirtualList } from "../parts/virtual";
import type { ViewProps } from "./view";

export default function Logs({ run }: ViewProps) {
  return (
    <VirtualList
      label="Log lines"
      count={run.logCount}
      row={(log) => (
        <div class="rowline">
          <span class="mono">{offset(run.log(log).time_us)}</span>
          <Level value={run.log(log).level} />
          <span class="cut grow trace">{oneLine(run.log(log).message)}</span>
        </div>
      )}
    />
  );
}
