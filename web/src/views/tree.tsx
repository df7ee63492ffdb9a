/** The tree of spans. */

import { Kind, Status } from "../parts/badges";
import { duration, oneLine } from "../parts/format";
import { VirtualList } from "../parts/virtual";
import { select, selected } from "../state";
import type { ViewProps } from "./view";

export default function Tree({ run }: ViewProps) {
  return (
    <VirtualList
      label="Spans"
      count={run.count}
      active={run.at(selected.value) ?? null}
      row={(index) => (
        <div class="rowline" style={{ paddingLeft: `${8 + run.depth[index]! * 14}px` }} onClick={() => select(run.number(index))}>
          <Kind type={run.type(index)} />
          <span class="cut">{oneLine(run.name(index))}</span>
          <span class="cut quiet grow">{oneLine(run.label(index))}</span>
          <Status value={run.status(index)} brief />
          <span class="quiet">{duration(run.duration(index))}</span>
        </div>
      )}
    />
  );
}
