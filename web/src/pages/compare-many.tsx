/** More than two runs of one task as a table; each is compared with the first. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { Status } from "../parts/badges";
import { count, durationMs, oneLine, price, short } from "../parts/format";
import { Failed, Loading } from "../parts/placeholders";
import { href } from "../router";
import type { RunsDiffData } from "../types";
import { asApiError } from "../use-query";

const TOOLS_SHOWN = 6;

/** The first difference in words: `exchange_rate(USD, EUR): rate=0.92 | rate=10.0`. */
export function firstDifference(data: RunsDiffData): string {
  const row = data.first_row === null ? undefined : data.rows[data.first_row];
  if (!row) return "none";
  const step = oneLine(row.a_step ?? row.b_step ?? row.a_text ?? row.b_text ?? "a step", 80);
  if (row.mark !== "~") return `${step} only in ${row.mark === "+" ? data.b : data.a}`;
  if (row.a_content || row.b_content)
    return `${step}: ${oneLine(row.a_content || "nothing", 80)} in ${data.a}, ${oneLine(row.b_content || "nothing", 80)} in ${data.b}`;
  return `${step}, different ${row.class ?? "content"}`;
}

/** The totals of one side by name. */
function totalsOf(data: RunsDiffData, side: "a" | "b"): Map<string, number | string | null> {
  return new Map(data.deltas.map((delta) => [delta.name, delta[side]]));
}

export function CompareMany({ ids }: { ids: string[] }) {
  const [base = "", ...others] = ids;
  const [diffs, setDiffs] = useState<Map<string, RunsDiffData>>(new Map());
  const [error, setError] = useState<unknown>(null);
  const key = ids.join(",");
  useEffect(() => {
    document.title = `${ids.length} runs · Vestige`;
    let gone = false;
    void (async () => {
      for (const other of others) {
        if (gone) return;
        try {
          const data = await get<RunsDiffData>("diff", { a: base, b: other });
          if (!gone) setDiffs((before) => new Map(before).set(other, data));
        } catch (problem) {
          if (!gone) setError(problem);
        }
      }
    })();
    return () => {
      gone = true;
    };
  }, [key]);
  const known = diffs.values().next().value;
  if (error && !known) return <Failed error={asApiError(error)} />;
  if (!known) return <Loading what="the runs" />;
  return (
    <div class="scroll grow page-pad" tabIndex={0} role="region" aria-label="Runs compared">
      <h1>{ids.length} runs</h1>
      {error ? <Failed error={asApiError(error)} /> : null}
      <table class="plain">
        <thead>
          <tr>
            <th>Run</th>
            <th>Outcome</th>
            <th class="right">Model calls</th>
            <th>Tools</th>
            <th class="right">Duration</th>
            <th class="right">Tokens</th>
            <th class="right">Cost</th>
            <th>First difference</th>
          </tr>
        </thead>
        <tbody>
          <Row id={base} totals={totalsOf(known, "a")}>
            <span class="quiet">Baseline</span>
          </Row>
          {others.map((id) => {
            const data = diffs.get(id);
            return data ? (
              <Row key={id} id={id} totals={totalsOf(data, "b")}>
                <a href={href("compare", "", { a: base, b: id })} class="trace">
                  {firstDifference(data)}
                </a>
              </Row>
            ) : (
              <tr key={id}>
                <td class="mono">{id}</td>
                <td class="quiet" colSpan={7}>
                  Comparing…
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  id: string;
  totals: Map<string, number | string | null>;
  children: ComponentChildren;
}

function Row({ id, totals, children }: RowProps) {
  const value = (name: string): number | null => {
    const found = totals.get(name);
    return typeof found === "number" ? found : null;
  };
  const tools = [...totals]
    .filter(([name, calls]) => name.startsWith("tool:") && calls)
    .sort((one, two) => Number(two[1]) - Number(one[1]));
  const more = tools.length - TOOLS_SHOWN;
  return (
    <tr>
      <td>
        <a class="mono" href={href("run", id)}>
          {id}
        </a>
      </td>
      <td>
        <Status value={String(totals.get("outcome") ?? "")} />
      </td>
      <td class="right">{count(value("model_calls"))}</td>
      <td class="trace">
        {tools
          .slice(0, TOOLS_SHOWN)
          .map(([name, calls]) => `${oneLine(name.slice(5), 30)} ×${calls}`)
          .join(", ")}
        {more > 0 ? `, ${more} more` : ""}
      </td>
      <td class="right">{durationMs(value("duration_ms"))}</td>
      <td class="right">{short((value("input_tokens") ?? 0) + (value("output_tokens") ?? 0))}</td>
      <td class="right">{price(value("cost_usd"), true)}</td>
      <td>{children}</td>
    </tr>
  );
}
