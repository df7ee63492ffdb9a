/** Tools by what they cost standing in every prompt, against how much they are used. */

import { useAnswer } from "../answers";
import { count, oneLine, percent, short } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/state";
import type { Ranked, Ranking } from "../types";

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
  if (error) return <div class="page-pad"><Failed error={error} again={again} /></div>;
  if (!data) return <Loading what="the tools" />;
  const ranked = data.ranking?.measured.tools ?? [];
  if (!ranked.length && !data.rows.length) return <Empty>No tool was offered or called.</Empty>;
  return (
    <div class="scroll grow tools" tabIndex={0} role="region" aria-label="Tools">
      {ranked.length > 0 && data.ranking && <Standing tools={ranked} ranking={data.ranking} />}
      {data.rows.length > 0 && <Called rows={data.rows} />}
    </div>
  );
}

function Standing({ tools, ranking }: { tools: Ranked[]; ranking: Ranking }) {
  const most = Math.max(...tools.map((tool) => tool.bytes_per_turn), 1);
  const { turns, runs, requests } = ranking.measured;
  return (
    <section>
      <h2>Standing cost against use</h2>
      <p class="quiet">
        What each tool's description takes in a prompt, over {count(turns)} model calls of {count(runs)} runs
        ({count(requests)} requests looked at).
      </p>
      <table class="plain">
        <thead>
          <tr><th>Tool</th><th class="wide">In every prompt</th><th class="right">Tokens, est.</th><th class="right">Calls</th><th class="right">Went well</th><th>Use</th></tr>
        </thead>
        <tbody>
          {tools.map((tool) => (
            <tr key={tool.name}>
              <td class="trace">{oneLine(tool.name, 80)}</td>
              <td class="wide"><span class="meter" aria-hidden="true"><span style={{ width: `${(tool.bytes_per_turn / most) * 100}%` }} /></span></td>
              <td class="right">{count(tool.tokens_per_turn_estimated)}</td>
              <td class="right">{count(tool.calls ?? 0)}</td>
              <td class="right">{tool.calls ? percent((tool.ok ?? 0) / tool.calls) : "–"}</td>
              <td>{tool.calls ? <span class="quiet">{short(Math.round((tool.tokens_per_turn_estimated * turns) / tool.calls))} tokens per call</span> : <span class="badge warn">▲ never called</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const ms = (ns: number | null): string => (ns === null ? "–" : ns >= 1e9 ? `${(ns / 1e9).toFixed(1)} s` : `${(ns / 1e6).toFixed(ns < 1e7 ? 1 : 0)} ms`);

function Called({ rows }: { rows: StatsRow[] }) {
  return (
    <section>
      <h2>Calls</h2>
      <table class="plain">
        <thead>
          <tr><th>Tool</th><th class="right">Calls</th><th class="right">Failed</th><th class="right">p50</th><th class="right">p95</th></tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <td class="trace">{oneLine(row.key, 80)}</td>
              <td class="right">{count(row.count)}</td>
              <td class="right">{row.errors ? <span class="badge bad">✕ {count(row.errors)} · {percent(row.errors / row.count)}</span> : "0"}</td>
              <td class="right">{ms(row.p50_ns)}</td>
              <td class="right">{ms(row.p95_ns)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
