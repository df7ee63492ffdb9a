/** The table of runs: one row each, only the visible ones exist. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useKeys } from "../keys";
import { Status } from "../parts/badges";
import { ago, cost, count, durationMs, moment, oneLine, short } from "../parts/format";
import { Empty, Loading } from "../parts/state";
import { VirtualList } from "../parts/virtual";
import { adjust, go, href } from "../state";
import type { RunRow } from "../types";
import { useTopFindings, type Runs } from "./runs";

/** Two lines a row where there is no room for columns. */
const NARROW = matchMedia("(max-width: 760px)");
const LARGE = matchMedia("(min-width: 2200px)");
const rowHeight = (): number => (NARROW.matches ? 54 : LARGE.matches ? 36 : 30);

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

const NONE: RunRow[] = [];

export function RunTable({ runs, filtered, grouped }: { runs: Runs; filtered: boolean; grouped: boolean }) {
  // By its id: rows come in above it.
  const [chosen, choose] = useState<string | null>(null);
  const [marked, setMarked] = useState<string[]>([]);
  const [, tick] = useState(0);
  const height = useRowHeight();
  useEffect(() => {
    const timer = setInterval(() => tick((turn) => turn + 1), 10_000); // "3 s ago" grows old
    return () => clearInterval(timer);
  }, []);
  const rows = runs.rows ?? NONE;
  const at = useMemo(() => (chosen === null ? -1 : rows.findIndex((run) => run.id === chosen)), [rows, chosen]);
  const setAt = (place: number): void => choose(rows[place]?.id ?? null);
  const tops = useTopFindings(rows);
  const move = (by: number): void => setAt(Math.max(0, Math.min(rows.length - 1, at + by)));
  const mark = (id: string): void =>
    setMarked((before) => (before.includes(id) ? before.filter((one) => one !== id) : [...before, id].slice(-2)));
  const nextFailed = (): void => {
    const next = rows.findIndex((run, place) => place > at && run.outcome !== "ok" && run.outcome !== "running");
    if (next >= 0) setAt(next);
  };
  // The older one first: a diff reads from it to the newer.
  const compare = (): void => {
    const [a, b] = [...marked].sort((one, two) => Number(one.slice(1)) - Number(two.slice(1)));
    if (a && b) go(href("compare", "", { a, b }));
  };
  useKeys([
    { key: "j", say: "next run", run: () => move(1) },
    { key: "k", say: "run before", run: () => move(-1) },
    { key: "e", say: "next run that failed", run: nextFailed },
    { key: "Enter", say: "open the run", run: () => rows[at] && go(href("run", rows[at].short_id)) },
    { key: "x", say: "mark the run to compare", run: () => rows[at] && mark(rows[at].short_id) },
    { key: "c", say: "compare the two that are marked", run: compare },
  ]);
  if (!runs.rows) return runs.error ? null : <Loading what="runs" />;
  if (!rows.length) return <NoRuns filtered={filtered} looking={runs.looking} />;
  return (
    <div class="column grow">
      <div class="runtable column grow" role="table" aria-label="Runs" aria-rowcount={runs.more ? -1 : rows.length}>
        <div role="rowgroup" class="runrow runhead">
          <div role="row" class="runcells">
            <span role="columnheader"><span class="sr">Marked</span></span>
            <span role="columnheader">Outcome</span>
            <span role="columnheader">Run</span>
            <span role="columnheader">Name</span>
            <span role="columnheader">Started</span>
            <span role="columnheader" class="right">Took</span>
            <span role="columnheader" class="right">Spans</span>
            <span role="columnheader" class="right">Errors</span>
            <span role="columnheader" class="right">Tokens</span>
            <span role="columnheader" class="right">Cost</span>
            <span role="columnheader">Top finding</span>
          </div>
        </div>
        <VirtualList
          role="rowgroup"
          label="Runs"
          count={rows.length}
          height={height}
          key={height}
          active={at < 0 ? null : at}
          onEnd={runs.loadMore}
          keyOf={(place) => rows[place]!.id}
          rowProps={(place) => ({
            role: "row",
            "aria-rowindex": place + 1,
            "aria-selected": place === at,
            class: `runrow ${place === at ? "at" : ""} ${rows[place]!.outcome === "running" ? "alive" : ""}`,
            onClick: (event: MouseEvent) => {
              if (!(event.target as HTMLElement).closest("a, input, button")) go(href("run", rows[place]!.short_id));
            },
          })}
          row={(place) => <Cells run={rows[place]!} marked={marked.includes(rows[place]!.short_id)} mark={mark} grouped={grouped} top={rows[place]!.top_finding ?? tops.get(rows[place]!.id) ?? ""} />}
        />
      </div>
      {marked.length > 0 && (
        <div class="list-foot rowline">
          <span>{marked.length === 1 ? `${marked[0]} is marked: mark another one to compare.` : `${marked.join(" and ")} are marked.`}</span>
          <button type="button" disabled={marked.length < 2} onClick={compare}>Compare</button>
          <button type="button" class="plain" onClick={() => setMarked([])}>Unmark</button>
        </div>
      )}
    </div>
  );
}

interface CellsProps {
  run: RunRow;
  marked: boolean;
  mark: (id: string) => void;
  grouped: boolean;
  top: string;
}

function Cells({ run, marked, mark, grouped, top }: CellsProps) {
  const took = run.duration_ms ?? (run.outcome === "running" ? Date.now() - Date.parse(run.started_at) : null);
  const name = oneLine(run.name, 160) || "(no name)";
  return (
    <div class="runcells" role="presentation">
      <span role="cell" class="c-mark"><input type="checkbox" aria-label={`Mark ${run.short_id} to compare`} checked={marked} onChange={() => mark(run.short_id)} /></span>
      <span role="cell" class="c-outcome"><Status value={run.outcome} /></span>
      <span role="cell" class="c-id mono quiet">{run.short_id}</span>
      <span role="cell" class="c-name cut">
        <a class="trace" href={href("run", run.short_id)} tabIndex={-1}>{name}</a>
        {run.pinned && <span class="quiet" title="pinned"> ◆<span class="sr">pinned</span></span>}
        {run.conversation_id && <Conversation run={run} grouped={grouped} />}
      </span>
      <span role="cell" class="c-when quiet" title={moment(run.started_at)}>{ago(run.started_at)}</span>
      <span role="cell" class="c-took right">{durationMs(took)}</span>
      <span role="cell" class="c-spans right quiet">{count(run.span_count)}</span>
      <span role="cell" class="c-failed right">{run.error_count ? <span class="bad">{count(run.error_count)}<span class="unit"> {run.error_count === 1 ? "error" : "errors"}</span></span> : ""}</span>
      <span role="cell" class="c-tokens right quiet">{run.tokens ? <>{short(run.tokens)}<span class="unit"> tokens</span></> : ""}</span>
      <span role="cell" class="c-cost right quiet">{cost(run.cost_usd)}</span>
      <span role="cell" class="c-finding cut" title={oneLine(top, 200)}>{oneLine(top, 80)}</span>
    </div>
  );
}

/** Grouped: how many runs the conversation has; else a way to see them. */
function Conversation({ run, grouped }: { run: RunRow; grouped: boolean }) {
  const id = run.conversation_id!;
  const only = (): void => adjust({ group: null, q: `conversation:"${id.replaceAll('"', "")}"` });
  const told = run.group ? `${count(run.group.runs)} ${run.group.runs === 1 ? "run" : "runs"}${run.group.failed ? `, ${count(run.group.failed)} failed` : ""}` : oneLine(id, 24);
  return (
    <button type="button" class="plain conversation" title={`Only the conversation ${oneLine(id, 80)}`} tabIndex={-1} onClick={only}>
      {grouped ? told : `⌁ ${told}`}
    </button>
  );
}

function NoRuns({ filtered, looking }: { filtered: boolean; looking: boolean }) {
  if (looking) return <Loading what="runs" />;
  if (filtered) return <Empty>No such runs. <a href="#/">All there are</a></Empty>;
  return <Empty>No runs yet. Record one: <code>vestige run -- python your_agent.py</code></Empty>;
}
