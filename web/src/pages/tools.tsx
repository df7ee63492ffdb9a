/** Tools by what they cost standing in every prompt, against how much they are used. */

import { count, oneLine, percent, short } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import type { Ranked, Ranking } from "../types";
import { useAnswer } from "../use-query";

interface StatsRow {
  key: string;
  count: number;
  errors: number;
  p50_ns: number | null;
  p95_ns: number | null;
}
interface StatsData {
  rows: StatsRow[];
  ranking: Ranking | null;
}

export function Tools() {
  const { data, error, again } = useAnswer<StatsData>("stats", { by: "tool" });
  if (error)
    return (
      <div class="page-pad">
        <Failed error={error} again={again} />
      </div>
    );
  if (!data) return <Loading what="the tools" />;
  const ranked = data.ranking?.measured.tools ?? [];
  if (!ranked.length && !data.rows.length) return <Empty>No tools recorded yet</Empty>;
  return (
    <div class="scroll grow tools" tabIndex={0} role="region" aria-label="Tools">
      {ranked.length > 0 && data.ranking && <PromptCosts tools={ranked} ranking={data.ranking} />}
      {data.rows.length > 0 && <Called rows={data.rows} />}
    </div>
  );
}

function PromptCosts({ tools, ranking }: { tools: Ranked[]; ranking: Ranking }) {
  const most = Math.max(...tools.map((tool) => tool.bytes_per_turn), 1);
  const { turns, runs, requests } = ranking.measured;
  const usesOf = (tool: Ranked): number => (tool.calls || tool.asked) ?? 0;
  return (
    <section>
      <h2>Prompt cost vs. usage</h2>
      <p class="quiet">
        Tokens each tool definition adds to every request. Based on {count(requests)} of{" "}
        {count(turns)} model calls in {count(runs)} {runs === 1 ? "run" : "runs"}.
      </p>
      <table class="plain">
        <thead>
          <tr>
            <th>Tool</th>
            <th class="wide">Size in prompt</th>
            <th class="right">Est. tokens</th>
            <th class="right">Calls</th>
            <th class="right roomy">Success rate</th>
            <th>Prompt tokens per use</th>
          </tr>
        </thead>
        <tbody>
          {tools.map((tool) => (
            <tr key={tool.name}>
              <td class="trace">{oneLine(tool.name, 80)}</td>
              <td class="wide">
                {tool.bytes_per_turn > 0 && (
                  <span class="meter" aria-hidden="true">
                    <span style={{ width: `${(tool.bytes_per_turn / most) * 100}%` }} />
                  </span>
                )}
              </td>
              <td class="right">
                {tool.bytes_per_turn > 0 ? count(tool.tokens_per_turn_estimated) : "unknown"}
              </td>
              <td class="right">{count(usesOf(tool))}</td>
              <td class="right roomy">{tool.calls ? percent((tool.ok ?? 0) / tool.calls) : "–"}</td>
              <td>
                {tool.bytes_per_turn === 0 ? (
                  <span class="quiet">–</span>
                ) : usesOf(tool) ? (
                  <span class="quiet">
                    {short(
                      Math.round((tool.tokens_per_turn_estimated * tool.turns) / usesOf(tool)),
                    )}
                  </span>
                ) : (
                  <span class="badge warn">Unused</span>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** An upper bound: durations are counted in ranges of at most 25 %. */
const ms = (ns: number | null): string =>
  ns === null
    ? "–"
    : ns >= 1e9
      ? `≤ ${(ns / 1e9).toFixed(1)} s`
      : `≤ ${(ns / 1e6).toFixed(ns < 1e7 ? 1 : 0)} ms`;

function Called({ rows }: { rows: StatsRow[] }) {
  return (
    <section>
      <h2>Calls</h2>
      <table class="plain">
        <thead>
          <tr>
            <th>Tool</th>
            <th class="right">Calls</th>
            <th class="right">Failed</th>
            <th class="right roomy">p50</th>
            <th class="right">p95</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <td class="trace">{oneLine(row.key, 80)}</td>
              <td class="right">{count(row.count)}</td>
              <td class="right">
                {row.errors ? (
                  <span class="badge bad">
                    ✕ {count(row.errors)} · {percent(row.errors / row.count)}
                  </span>
                ) : (
                  "0"
                )}
              </td>
              <td class="right roomy">{ms(row.p50_ns)}</td>
              <td class="right">{ms(row.p95_ns)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
