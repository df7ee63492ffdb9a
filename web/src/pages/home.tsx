/** Home: every run, newest first. */

import { useAnswer } from "../answers";
import { Status } from "../parts/badges";
import { ago, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/state";
import { VirtualList } from "../parts/virtual";
import { href } from "../state";
import type { ListData } from "../types";

export function Home() {
  const { data, error, again } = useAnswer<ListData>("list", { limit: 1000 });
  if (error) return <Failed error={error} again={again} />;
  if (!data) return <Loading what="runs" />;
  if (!data.runs.length) return <Empty>No runs.</Empty>;
  return (
    <VirtualList
      label="Runs"
      count={data.runs.length}
      row={(at) => {
        const run = data.runs[at]!;
        return (
          <a class="rowline" href={href("run", run.short_id)}>
            <span class="mono">{run.short_id}</span>
            <Status value={run.outcome} />
            <span class="cut grow">{oneLine(run.name)}</span>
            <span class="quiet">{ago(run.started_at)}</span>
          </a>
        );
      }}
    />
  );
}
