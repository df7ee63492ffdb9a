/** Costs by model and time by tool, and the most expensive runs. */

import { count, durationMs, oneLine, percent, price, short } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { href } from "../router";
import type { ListData } from "../types";
import { useAnswer } from "../use-query";
import { taskOf } from "./run-columns";
import { sumRuns } from "./sum-runs";

interface StatsRow {
  key: string;
  count: number;
  errors: number;
  duration_ns: number | null;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cost_usd: number | null;
  unpriced_models: string[];
}
interface StatsData {
  rows: StatsRow[];
}
const TOP_RUNS = 10;

export function Costs({ since }: { since: string }) {
  const models = useAnswer<StatsData>("stats", { by: "model", since });
  const tools = useAnswer<StatsData>("stats", { by: "tool", since });
  const runs = useAnswer<ListData>("list", {
    sort: "cost",
    cost: true,
    limit: TOP_RUNS,
    since,
    totals: true,
  });
  const error = models.error ?? tools.error ?? runs.error;
  if (error)
    return (
      <div class="page-pad">
        <Failed error={error} again={models.again} />
      </div>
    );
  if (!models.data || !runs.data) return <Loading what="costs" />;
  const rows = [...models.data.rows].sort((a, b) => (b.cost_usd ?? 0) - (a.cost_usd ?? 0));
  if (!rows.length) return <Empty>No model calls recorded yet</Empty>;
  const total = rows.reduce((sum, row) => sum + (row.cost_usd ?? 0), 0);
  const isPriced = rows.every((row) => row.cost_usd !== null && !row.unpriced_models.length);
  const add = (of: (row: StatsRow) => number | null): number =>
    rows.reduce((sum, row) => sum + (of(row) ?? 0), 0);
  const expensive = runs.data.runs.filter((run) => run.cost_usd);
  const shown = sumRuns(expensive);
  const { totals } = runs.data;
  return (
    <div class="scroll grow tools" tabIndex={0} role="region" aria-label="Costs">
      <section>
        <h2>By model</h2>
        <table class="plain">
          <thead>
            <tr>
              <th>Model</th>
              <th class="wide">Share of cost</th>
              <th class="right">Cost</th>
              <th class="right">Calls</th>
              <th class="right">Tokens in</th>
              <th class="right roomy">Cached</th>
              <th class="right roomy">Tokens out</th>
              <th class="right roomy">Time</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.key}>
                <td class="trace mono">{oneLine(row.key, 60) || "Unknown model"}</td>
                <td class="wide">
                  {total > 0 && row.cost_usd ? <Meter part={row.cost_usd / total} /> : null}
                </td>
                <td class="right">
                  {row.cost_usd === null ? "no price" : price(row.cost_usd, true)}
                </td>
                <td class="right">{count(row.count)}</td>
                <td class="right">{short(row.input_tokens)}</td>
                <td class="right roomy">
                  {row.cache_read_tokens ? short(row.cache_read_tokens) : ""}
                </td>
                <td class="right roomy">{short(row.output_tokens)}</td>
                <td class="right roomy">
                  {row.duration_ns ? durationMs(row.duration_ns / 1e6) : "–"}
                </td>
              </tr>
            ))}
          </tbody>
          {rows.length > 1 && (
            <tfoot>
              <tr>
                <th scope="row">Total</th>
                <td class="wide" />
                <td class="right">{price(total, isPriced)}</td>
                <td class="right">{count(add((row) => row.count))}</td>
                <td class="right">{short(add((row) => row.input_tokens))}</td>
                <td class="right roomy">{short(add((row) => row.cache_read_tokens)) || ""}</td>
                <td class="right roomy">{short(add((row) => row.output_tokens))}</td>
                <td class="right roomy">{durationMs(add((row) => row.duration_ns) / 1e6)}</td>
              </tr>
            </tfoot>
          )}
        </table>
      </section>
      {expensive.length > 0 && (
        <section>
          <h2>Most expensive runs</h2>
          <table class="plain">
            <thead>
              <tr>
                <th>Run</th>
                <th class="task">Task</th>
                <th class="right">Cost</th>
                <th class="right roomy">Calls</th>
                <th class="right roomy">Tokens</th>
              </tr>
            </thead>
            <tbody>
              {expensive.map((run) => (
                <tr key={run.id}>
                  <td>
                    <a class="mono" href={href("run", run.short_id)}>
                      {run.short_id}
                    </a>{" "}
                    <span class="trace">{oneLine(run.name, 40)}</span>
                  </td>
                  <td class="trace task">{oneLine(taskOf(run), 90)}</td>
                  <td class="right">{price(run.cost_usd, run.cost_complete !== false)}</td>
                  <td class="right roomy">{count(run.model_calls)}</td>
                  <td class="right roomy">{short(run.tokens)}</td>
                </tr>
              ))}
            </tbody>
            {expensive.length > 1 && (
              <tfoot>
                <tr>
                  <th scope="row">Total</th>
                  <td class="task">
                    {count(shown.runs)} runs
                    {totals?.cost_usd
                      ? `: ${percent((shown.cost_usd ?? 0) / totals.cost_usd)} of ${price(totals.cost_usd, totals.unpriced_models.length === 0)}`
                      : ""}
                  </td>
                  <td class="right">{price(shown.cost_usd, shown.complete)}</td>
                  <td class="right roomy">{count(shown.calls)}</td>
                  <td class="right roomy">{short(shown.tokens)}</td>
                </tr>
              </tfoot>
            )}
          </table>
        </section>
      )}
      {tools.data && tools.data.rows.length > 0 && (
        <section>
          <h2>Time by tool</h2>
          <table class="plain">
            <thead>
              <tr>
                <th>Tool</th>
                <th class="right">Calls</th>
                <th class="right">Failed</th>
                <th class="right">Total time</th>
              </tr>
            </thead>
            <tbody>
              {[...tools.data.rows]
                .sort((a, b) => (b.duration_ns ?? 0) - (a.duration_ns ?? 0))
                .map((row) => (
                  <tr key={row.key}>
                    <td class="trace mono">{oneLine(row.key, 60)}</td>
                    <td class="right">{count(row.count)}</td>
                    <td class="right">{row.errors ? count(row.errors) : ""}</td>
                    <td class="right">{durationMs((row.duration_ns ?? 0) / 1e6)}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </section>
      )}
    </div>
  );
}

function Meter({ part }: { part: number }) {
  return (
    <span class="meter" title={percent(part)}>
      <span style={{ width: `${Math.max(0, Math.min(100, part * 100))}%` }} />
    </span>
  );
}
