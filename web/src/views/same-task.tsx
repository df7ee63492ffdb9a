/** The other runs of a run's task: outcome, cost, and a comparison with each. */

import { exported } from "../api";
import { Status } from "../parts/badges";
import { ago, count, durationMs, moment, oneLine, price } from "../parts/format";
import { Menu } from "../parts/menu";
import { Failed, Loading } from "../parts/placeholders";
import { href } from "../router";
import type { ListData, RunRow } from "../types";
import { useAnswer } from "../use-query";

const SHOWN = 20;

/** Null while they are loading, and in an export, which has one run only. */
export function useSameTask(run: string | null) {
  return useAnswer<ListData>("same_task", run && !exported ? { id: run } : null);
}

/** A menu of a run: the other runs of its task, and any other run. */
export function CompareMenu({ run }: { run: string }) {
  return (
    <Menu label="Compare" name="Compare with another run" align="right" class="on-wide">
      {() => (
        <div class="choices same-task">
          <b>Runs of this task</b>
          <SameTask run={run} />
          <a class="link" href={href("compare", "", { a: run })}>
            Choose another run…
          </a>
        </div>
      )}
    </Menu>
  );
}

export function SameTask({ run }: { run: string }) {
  const { data, error } = useSameTask(run);
  if (error) return <Failed error={error} />;
  if (!data) return <Loading what="the runs" />;
  if (!data.runs.length) return <p class="quiet">No other run of this task</p>;
  const left = data.runs.length - SHOWN;
  return (
    <div class="same-task-rows">
      <table class="plain">
        <thead>
          <tr>
            <th>Run</th>
            <th>Outcome</th>
            <th class="right">Duration</th>
            <th class="right">Cost</th>
            <th>
              <span class="sr">Compare</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {data.runs.slice(0, SHOWN).map((other) => (
            <Row key={other.id} run={run} other={other} />
          ))}
        </tbody>
      </table>
      {left > 0 && <p class="quiet">{count(left)} older runs are not shown</p>}
    </div>
  );
}

function Row({ run, other }: { run: string; other: RunRow }) {
  const id = other.short_id;
  return (
    <tr>
      <td class="nowrap" title={moment(other.started_at)}>
        <a class="mono" href={href("run", id)}>
          {id}
        </a>{" "}
        <span class="quiet">{ago(other.started_at)}</span>
      </td>
      <td title={oneLine(other.finding ?? "", 300)}>
        <Status value={other.outcome} />
      </td>
      <td class="right nowrap">{durationMs(other.duration_ms || null)}</td>
      <td class="right nowrap">{price(other.cost_usd, other.cost_complete !== false)}</td>
      <td class="right">
        <a
          class="button"
          href={href("compare", "", { a: id, b: run })}
          aria-label={`Compare with ${id}`}
        >
          Compare
        </a>
      </td>
    </tr>
  );
}
