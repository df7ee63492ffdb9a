/** The tree of spans: who did what inside what. Branches fold; a filter keeps matches and what they stand in. */

import { useCallback, useMemo, useState } from "preact/hooks";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { Kind, Status } from "../parts/badges";
import { duration, offset, oneLine, short } from "../parts/format";
import { Empty } from "../parts/state";
import { VirtualList } from "../parts/virtual";
import { filter, range, select, selected, type Range } from "../state";
import { matching, useSteps, within } from "./chosen";
import type { ViewProps } from "./view";
import "./rows.css";

/** So many levels step to the right; deeper ones stay there, with their depth as a number. */
const INDENT_MAX = 24;

export default function Tree({ run }: ViewProps) {
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const words = filter.value;
  const time = range.value;
  const kept = useMemo(() => keptSpans(run, words, time), [run, words, time?.from_us, time?.to_us]);
  const rows = useMemo(() => shownRows(run, folded, kept), [run, folded, kept]);
  const at = run.at(selected.value);
  const place = useMemo(() => {
    const found = new Map<number, number>();
    rows.forEach((index, row) => found.set(index, row));
    return found;
  }, [rows]);
  const keyOf = useCallback((row: number) => run.number(rows[row]!), [rows]);
  useSteps(run, rows);
  const fold = (index: number, to: boolean): void => {
    const next = new Set(folded);
    if (to) next.add(run.number(index));
    else next.delete(run.number(index));
    setFolded(next);
  };
  const isFolded = (index: number): boolean => folded.has(run.number(index));
  useKeys([
    { key: "ArrowLeft", say: "fold", run: () => at !== undefined && fold(at, true) },
    { key: "ArrowRight", say: "unfold", run: () => at !== undefined && fold(at, false) },
  ]);
  if (!rows.length) return <Empty>{run.count ? "Nothing here matches the filter." : "No spans were recorded."}</Empty>;
  return (
    <VirtualList
      label="Spans"
      role="tree"
      count={rows.length}
      keyOf={keyOf}
      active={at === undefined ? null : (place.get(at) ?? null)}
      follow={run.run.outcome === "running"}
      rowProps={(row) => {
        const index = rows[row]!;
        const branches = run.children[index]!.length > 0;
        return {
          role: "treeitem",
          "aria-level": run.depth[index]! + 1,
          "aria-selected": index === at,
          ...(branches ? { "aria-expanded": !isFolded(index) } : {}),
          class: `treerow ${index === at ? "chosen" : ""} ${run.failed(index) ? "failed" : ""}`,
          onClick: () => select(run.number(index)),
        };
      }}
      row={(row) => <SpanRow run={run} index={rows[row]!} folded={isFolded(rows[row]!)} fold={fold} />}
    />
  );
}

function SpanRow({ run, index, folded, fold }: { run: RunModel; index: number; folded: boolean; fold: (index: number, to: boolean) => void }) {
  const depth = run.depth[index]!;
  const inside = run.children[index]!.length;
  const tokens = (run.inputTokens(index) ?? 0) + (run.outputTokens(index) ?? 0);
  return (
    <div class="rowline treeline" style={{ paddingLeft: `${6 + Math.min(depth, INDENT_MAX) * 14}px` }}>
      <span
        class={`twist ${inside ? "" : "none"}`}
        aria-hidden="true"
        onClick={(event) => {
          if (!inside) return;
          event.stopPropagation();
          fold(index, !folded);
        }}
      >
        {inside ? (folded ? "▸" : "▾") : ""}
      </span>
      {depth > INDENT_MAX && <span class="quiet">{depth}</span>}
      <Kind type={oneLine(run.type(index), 24)} />
      <span class="cut trace name">{oneLine(run.name(index), 120) || "(no name)"}</span>
      <span class="cut quiet trace grow">{oneLine(run.label(index), 160)}</span>
      {folded && inside > 0 && <span class="quiet nowrap">{short(inside)} inside</span>}
      {tokens > 0 && <span class="quiet nowrap wide">{short(tokens)} tok</span>}
      {run.status(index) !== "ok" && <Status value={run.status(index)} />}
      <span class="quiet nowrap num wide">{offset(run.start(index))}</span>
      <span class="nowrap num">{duration(run.duration(index)) || "…"}</span>
    </div>
  );
}

/** Matches and all that they stand in; null: everything. */
function keptSpans(run: RunModel, words: string, time: Range | null): Uint8Array | null {
  const found = matching(run, words);
  if (!found && !time) return null;
  const kept = new Uint8Array(run.count);
  for (let index = 0; index < run.count; index++) {
    if ((found && !found[index]) || !within(run, index, time)) continue;
    for (let above: number | null = index; above !== null && !kept[above]; above = run.parent(above)) kept[above] = 1;
  }
  return kept;
}

/** Depth first, without recursion: a trace may be deeper than the stack. */
function shownRows(run: RunModel, folded: ReadonlySet<number>, kept: Uint8Array | null): number[] {
  const rows: number[] = [];
  const open = [...run.roots].reverse();
  while (open.length) {
    const index = open.pop()!;
    if (kept && !kept[index]) continue;
    rows.push(index);
    if (folded.has(run.number(index))) continue;
    const inside = run.children[index]!;
    for (let at = inside.length - 1; at >= 0; at--) open.push(inside[at]!);
  }
  return rows;
}
