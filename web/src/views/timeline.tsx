/** The timeline of spans. */

import { duration, offset, oneLine } from "../parts/format";
import { VirtualList } from "../parts/virtual";
import { select } from "../state";
import type { ViewProps } from "./view";

export default function Timeline({ run }: ViewProps) {
  return (
    <VirtualList
      label="Spans over time"
      count={run.count}
      row={(index) => (
        <div class="rowline" onClick={() => select(run.number(index))}>
          <span class="mono">{offset(run.start(index))}</span>
          <span class="cut grow">{oneLine(run.name(index))}</span>
          <span class="quiet">{duration(run.duration(index))}</span>
        </div>
      )}
    />
  );
}
