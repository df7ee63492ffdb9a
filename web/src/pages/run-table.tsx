/** The table of runs: one row per run; only visible rows are rendered. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useKeys } from "../keys";
import { oneLine, price, short } from "../parts/format";
import { Menu } from "../parts/menu";
import { Empty, Loading } from "../parts/placeholders";
import { VirtualList } from "../parts/virtual-list";
import { adjust, go, href, keep, lastRun, recall } from "../router";
import type { RunRow } from "../types";
import { COLUMNS, type Column, OUTCOME, type RowView } from "./run-columns";
import { sumRuns } from "./sum-runs";
import { type Order, type Runs, useTopFindings } from "./use-runs";

/** Narrow screens show up to four lines per row instead of columns. */
const NARROW = matchMedia("(max-width: 760px)");
const LARGE = matchMedia("(min-width: 2200px)");
const rowHeight = (): number => (NARROW.matches ? 84 : LARGE.matches ? 54 : 46);
/** Runs that can be compared at once. */
const SELECTED_MAX = 12;

function useRowHeight(): number {
  const [height, setHeight] = useState(rowHeight);
  useEffect(() => {
    const change = (): void => setHeight(rowHeight());
    for (const query of [NARROW, LARGE]) query.addEventListener("change", change);
    return () => {
      for (const query of [NARROW, LARGE]) query.removeEventListener("change", change);
    };
  }, []);
  return height;
}

/** The chosen columns, stored in this browser. */
export function useColumns(): [Column[], (id: string) => void] {
  const usual = COLUMNS.filter((column) => column.shown).map((column) => column.id);
  const [ids, setIds] = useState(() => recall("columns", usual.join(",")).split(","));
  const toggle = (id: string): void => {
    const next = ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id];
    keep("columns", next.join(","));
    setIds(next);
  };
  return [COLUMNS.filter((column) => ids.includes(column.id)), toggle];
}

export function ColumnMenu({ shown, toggle }: { shown: Column[]; toggle: (id: string) => void }) {
  return (
    <Menu label="Columns" align="right">
      {() => (
        <fieldset class="choices">
          <legend class="sr">Columns</legend>
          {COLUMNS.map((column) => (
            <label key={column.id}>
              <input
                type="checkbox"
                checked={shown.includes(column)}
                onChange={() => toggle(column.id)}
              />{" "}
              {column.label}
            </label>
          ))}
        </fieldset>
      )}
    </Menu>
  );
}

const SORTABLE = [OUTCOME, ...COLUMNS].filter((column) => column.sort);

/** The order of the runs where a narrow screen has no headings to click. */
export function SortPicker({ order }: { order: Order }) {
  const sort = order.sort || "started";
  const column = SORTABLE.find((one) => one.sort === sort);
  const ascending = (column?.ascending ?? false) !== order.reverse;
  return (
    <span class="rowline sort-picker">
      <label class="pick">
        <span class="sr">Sort by</span>
        <select value={sort} onChange={(event) => sortBy(event.currentTarget.value, false)}>
          {SORTABLE.map((one) => (
            <option key={one.id} value={one.sort}>
              {one.label}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        aria-label={ascending ? "Sort descending" : "Sort ascending"}
        onClick={() => sortBy(sort, !order.reverse)}
      >
        {ascending ? "▲" : "▼"}
      </button>
    </span>
  );
}

function sortBy(sort: string, reverse: boolean): void {
  adjust({ sort: sort === "started" ? null : sort, reverse: reverse ? 1 : null });
}

const NONE: RunRow[] = [];

interface TableProps {
  runs: Runs;
  filtered: boolean;
  /** The words that were searched. */
  words: string;
  grouped: boolean;
  order: Order;
  columns: Column[];
}

export function RunTable({ runs, filtered, words, grouped, order, columns }: TableProps) {
  // By id, because new rows are inserted above.
  const [chosen, choose] = useState<string | null>(null);
  const [marked, setMarked] = useState<string[]>([]);
  const returned = useRef(false);
  const [, tick] = useState(0);
  const height = useRowHeight();
  useEffect(() => {
    const timer = setInterval(() => tick((turn) => turn + 1), 10_000); // "3 s ago" grows old
    return () => clearInterval(timer);
  }, []);
  const rows = runs.rows ?? NONE;
  const at = useMemo(
    () => (chosen === null ? -1 : rows.findIndex((run) => run.id === chosen)),
    [rows, chosen],
  );
  useEffect(() => {
    if (returned.current || !runs.rows?.length) return;
    returned.current = true;
    const before = runs.rows.find((run) => run.short_id === lastRun());
    if (before) choose(before.id);
  }, [runs.rows]);
  // Another order is read from its beginning.
  const sorted = `${order.sort} ${order.reverse}`;
  const shownOrder = useRef(sorted);
  useEffect(() => {
    if (shownOrder.current !== sorted) choose(null);
    shownOrder.current = sorted;
  }, [sorted]);
  const setAt = (place: number): void => choose(rows[place]?.id ?? null);
  const findings = useTopFindings(rows);
  const move = (by: number): void => setAt(Math.max(0, Math.min(rows.length - 1, at + by)));
  /** The selected runs, also those that another filter leaves out. */
  const known = useRef(new Map<string, RunRow>());
  for (const run of rows) if (marked.includes(run.short_id)) known.current.set(run.short_id, run);
  const mark = (id: string): void =>
    setMarked((before) =>
      before.includes(id)
        ? before.filter((one) => one !== id)
        : [...before, id].slice(-SELECTED_MAX),
    );
  const nextFailed = (): void => {
    const next = rows.findIndex(
      (run, place) => place > at && !["ok", "running", "unknown"].includes(run.outcome),
    );
    if (next >= 0) setAt(next);
  };
  // The older run is the baseline.
  const compare = (): void => {
    if (runs.stale) return;
    const ids = [...marked].sort((one, two) => Number(one.slice(1)) - Number(two.slice(1)));
    const [a, b] = ids;
    if (ids.length > 2) go(href("compare", "", { runs: ids.join(",") }));
    else if (a && b) go(href("compare", "", { a, b }));
  };
  // Rows of another filter are shown until the new ones arrive, but nothing can be done with them.
  const current = runs.stale ? undefined : rows[at];
  useKeys([
    { key: "j", label: "Next run", run: () => move(1) },
    { key: "k", label: "Previous run", run: () => move(-1) },
    { key: "e", label: "Next failed run", run: nextFailed },
    {
      key: "Enter",
      label: "Open the run",
      run: () => current && go(href("run", current.short_id)),
    },
    {
      key: "x",
      label: "Select for comparison",
      run: () => current && mark(current.short_id),
    },
    { key: "c", label: "Compare selected runs", run: compare },
  ]);
  if (!runs.rows) return runs.error ? null : <Loading what="runs" />;
  if (!rows.length)
    return (
      <NoRuns
        filtered={filtered}
        looking={runs.looking || runs.stale}
        understood={runs.understood}
      />
    );
  const all = [OUTCOME, ...columns];
  const template = `16px ${all.map((column) => column.width).join(" ")}`;
  const viewOf = (run: RunRow): RowView => ({
    finding: run.finding ?? findings.get(run.id)?.message ?? "",
    severity: run.finding_severity ?? findings.get(run.id)?.severity ?? "",
    grouped,
    words,
  });
  return (
    <div class="column grow">
      <div
        class={`runtable column grow ${runs.stale ? "stale" : ""}`}
        aria-busy={runs.stale}
        inert={runs.stale}
        role="table"
        aria-label="Runs"
        aria-rowcount={runs.more ? -1 : rows.length}
        style={{ "--columns": template }}
      >
        <div role="rowgroup" class="runrow runhead">
          <div role="row" class="runcells">
            <span role="columnheader">
              <span class="sr">Select</span>
            </span>
            {all.map((column) => (
              <Heading key={column.id} column={column} order={order} />
            ))}
          </div>
        </div>
        <VirtualList
          role="rowgroup"
          label="Runs"
          count={rows.length}
          height={height}
          key={`${height} ${sorted}`}
          active={at < 0 || shownOrder.current !== sorted ? null : at}
          centre
          onEnd={runs.loadMore}
          keyOf={(place) => rows[place]!.id}
          rowProps={(place) => ({
            role: "row",
            "aria-rowindex": place + 1,
            "aria-selected": place === at,
            class: `runrow ${place === at ? "at" : ""} ${rows[place]!.outcome === "running" ? "alive" : ""}`,
            onClick: (event: MouseEvent) => {
              if (!(event.target as HTMLElement).closest("a, input, button"))
                go(href("run", rows[place]!.short_id));
            },
          })}
          row={(place) => {
            const run = rows[place]!;
            const view = viewOf(run);
            return (
              <div class="runcells" role="presentation">
                <span role="cell" class="c-mark">
                  <input
                    type="checkbox"
                    aria-label={`Select ${run.short_id}`}
                    checked={marked.includes(run.short_id)}
                    onChange={() => mark(run.short_id)}
                  />
                </span>
                {all.map((column) => (
                  <span
                    key={column.id}
                    role="cell"
                    class={`c-${column.id} ${column.right ? "right" : ""}`}
                  >
                    {column.cell(run, view)}
                  </span>
                ))}
              </div>
            );
          }}
        />
      </div>
      {marked.length > 0 && (
        <div class="list-foot rowline">
          <Selection
            runs={marked.flatMap((id) => {
              const run = known.current.get(id);
              return run ? [run] : [];
            })}
          />
          {marked.map((id) => (
            <button
              key={id}
              type="button"
              class="plain mono"
              aria-label={`Remove ${id} from the selection`}
              title={
                rows.some((run) => run.short_id === id) ? "" : "Not in the list below this filter"
              }
              onClick={() => mark(id)}
            >
              {id} <span aria-hidden="true">✕</span>
            </button>
          ))}
          <button type="button" disabled={marked.length < 2 || runs.stale} onClick={compare}>
            Compare
          </button>
          <button type="button" class="plain" onClick={() => setMarked([])}>
            Clear selection
          </button>
        </div>
      )}
    </div>
  );
}

/** The number of the selected runs, and their sums. */
function Selection({ runs }: { runs: RunRow[] }) {
  const sum = sumRuns(runs);
  return (
    <span role="status" aria-label="Selected runs">
      {runs.length === 1
        ? "1 run selected. Select another to compare."
        : `${runs.length} runs selected`}
      {runs.length > 1 && sum.tokens > 0 && (
        <>
          {" · "}
          <b>{short(sum.tokens)}</b> tokens
        </>
      )}
      {runs.length > 1 && sum.cost_usd !== null && (
        <>
          {" · "}
          <b>{price(sum.cost_usd, sum.complete)}</b>
        </>
      )}
    </span>
  );
}

/** A heading; a click sorts by it, a second one reverses the order. */
function Heading({ column, order }: { column: Column; order: Order }) {
  const { sort } = column;
  const current = sort !== undefined && sort === (order.sort || "started");
  const ascending = (column.ascending ?? false) !== order.reverse;
  const title = column.id === "outcome" ? <span class="sr">{column.label}</span> : column.label;
  if (!sort)
    return (
      <span role="columnheader" class={column.right ? "right" : ""}>
        {title}
      </span>
    );
  const click = (): void => sortBy(sort, current && !order.reverse);
  return (
    <span
      role="columnheader"
      class={column.right ? "right" : ""}
      aria-sort={current ? (ascending ? "ascending" : "descending") : undefined}
    >
      <button type="button" class="plain sorter" title={`Sort by ${column.label}`} onClick={click}>
        {title}
        <span aria-hidden="true">{current ? (ascending ? " ▲" : " ▼") : ""}</span>
      </button>
    </span>
  );
}

interface NoRunsProps {
  filtered: boolean;
  looking: boolean;
  understood: string;
}

function NoRuns({ filtered, looking, understood }: NoRunsProps) {
  if (looking) return <Loading what="runs" />;
  if (filtered)
    return (
      <Empty>
        No runs match{understood ? `: ${oneLine(understood, 300)}` : ""}.{" "}
        <a href="#/">Clear filter</a>
      </Empty>
    );
  return (
    <Empty>
      No runs yet. Record your first one: <code>vestige run -- python your_agent.py</code>
    </Empty>
  );
}
