/** The tree of spans. Branches fold; a filter shows matches with their ancestors. */

import { useCallback, useMemo, useState } from "preact/hooks";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { Kind, Status } from "../parts/badges";
import { duration, offset, oneLine, short } from "../parts/format";
import { NoteMark, useNotes } from "../parts/notes";
import { Empty } from "../parts/placeholders";
import { hitSpans } from "../parts/run-search";
import { hasTimes, TimeBar } from "../parts/time-bar";
import { VirtualList } from "../parts/virtual-list";
import { filter, go, type Range, range, select, selected } from "../router";
import type { NotesData } from "../types";
import type { Total } from "./roll-up";
import { matching, useSteps, within } from "./selection";
import { compareHref } from "./span-compare";
import { recordedName, type StepIndex, spanTitle } from "./step-index";
import { priceOf, useSpanTotals } from "./use-span-totals";
import "./rows.css";

/** Deeper levels are not indented further; they show their depth as a number. */
const INDENT_MAX = 24;

interface Props {
  run: RunModel;
  steps: StepIndex;
}

export default function Tree({ run, steps }: Props) {
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const words = filter.value;
  const time = range.value;
  const visibleSpans = useMemo(
    () => findVisible(run, words, time),
    [run, words, time?.from_us, time?.to_us],
  );
  const rows = useMemo(() => shownRows(run, folded, visibleSpans), [run, folded, visibleSpans]);
  const at = run.at(selected.value);
  const costs = useSpanTotals(run);
  const notes = useNotes(run.run.short_id);
  const place = useMemo(() => {
    const found = new Map<number, number>();
    for (const [row, index] of rows.entries()) found.set(index, row);
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
  const move = (by: 1 | -1): void => {
    const now = at === undefined ? -1 : (place.get(at) ?? -1);
    const next = rows[now < 0 ? 0 : Math.min(Math.max(now + by, 0), rows.length - 1)];
    if (next !== undefined) select(run.number(next));
  };
  const foldOrLeave = (): void => {
    if (at === undefined) return;
    const parent = run.parent(at);
    if (run.children[at]!.length && !isFolded(at)) fold(at, true);
    else if (parent !== null) select(run.number(parent));
  };
  const unfoldOrEnter = (): void => {
    if (at === undefined) return;
    const child = run.children[at]![0];
    if (isFolded(at)) fold(at, false);
    else if (child !== undefined) select(run.number(child));
  };
  useKeys([
    { key: "ArrowDown", label: "Next row", run: () => move(1) },
    { key: "ArrowUp", label: "Previous row", run: () => move(-1) },
    { key: "ArrowLeft", label: "Fold, or go to the parent", run: foldOrLeave },
    { key: "ArrowRight", label: "Unfold, or go to the first child", run: unfoldOrEnter },
  ]);
  if (!rows.length) return <Empty>{run.count ? "No matches" : "No spans were recorded."}</Empty>;
  const columns = { tokens: run.run.tokens > 0, costs: costs.size > 0 };
  return (
    <div class="column grow">
      <Heads run={run} {...columns} />
      <VirtualList
        label="Spans"
        role="tree"
        class="grow"
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
            title: "Shift-click another span to compare it with the selected one",
            onClick: (event: MouseEvent) => {
              if (event.shiftKey && at !== undefined && at !== index) {
                event.preventDefault();
                go(compareHref(run, at, index));
              } else select(run.number(index));
            },
          };
        }}
        row={(row) => (
          <SpanRow
            run={run}
            index={rows[row]!}
            folded={isFolded(rows[row]!)}
            fold={fold}
            cost={costs.get(rows[row]!)}
            notes={notes.get(run.shortId(rows[row]!))}
            hit={hitSpans.value.has(run.number(rows[row]!))}
            steps={steps}
            columns={columns}
          />
        )}
      />
    </div>
  );
}

/** The columns of numbers that the spans of this run fill. */
interface Columns {
  tokens: boolean;
  costs: boolean;
}

function Heads({ run, tokens, costs }: Columns & { run: RunModel }) {
  return (
    <div class="treehead rowline treeline quiet" aria-hidden="true">
      <span class="grow">Span</span>
      {tokens && <span class="num c-tokens wide">Tokens</span>}
      {costs && <span class="num c-cost">Cost</span>}
      <span class="num c-start wide">Start</span>
      {hasTimes(run) && (
        <>
          <span class="time-bar" />
          <span class="num c-took">Duration</span>
        </>
      )}
    </div>
  );
}

interface RowProps {
  run: RunModel;
  index: number;
  folded: boolean;
  fold: (index: number, to: boolean) => void;
  cost: Total | undefined;
  notes: NotesData["notes"] | undefined;
  /** True if the span matches the search. */
  hit: boolean;
  steps: StepIndex;
  columns: Columns;
}

function SpanRow({ run, index, folded, fold, cost, notes, hit, steps, columns }: RowProps) {
  const recorded = recordedName(run, index, steps);
  const depth = run.depth[index]!;
  const inside = run.children[index]!.length;
  const own = (run.inputTokens(index) ?? 0) + (run.outputTokens(index) ?? 0);
  const tokens = run.type(index) === "llm" ? own : (cost?.tokens ?? own);
  return (
    <div
      class="rowline treeline"
      style={{ paddingLeft: `${6 + Math.min(depth, INDENT_MAX) * 14}px` }}
    >
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
      <span class="cut trace name" title={recorded && `Recorded as ${oneLine(recorded, 80)}`}>
        {oneLine(spanTitle(run, index, steps), 120) || "Untitled"}
      </span>
      <span class="cut quiet trace grow">{oneLine(labelOf(run, index), 160)}</span>
      <NoteMark notes={notes} />
      {hit && (
        <span class="hit-mark" title="Matches the search">
          ●<span class="sr">match</span>
        </span>
      )}
      {folded && inside > 0 && <span class="quiet nowrap">{short(inside)} children</span>}
      {run.status(index) !== "ok" && <Status value={run.status(index)} brief />}
      {columns.tokens && <span class="num quiet c-tokens wide">{tokens ? short(tokens) : ""}</span>}
      {columns.costs && <span class="num c-cost">{priceOf(cost)}</span>}
      <span class="num quiet c-start wide">{offset(run.start(index))}</span>
      {hasTimes(run) && (
        <>
          <TimeBar run={run} start_us={run.start(index)} duration_us={run.duration(index)} />
          <span class="num c-took">{duration(run.duration(index)) || "…"}</span>
        </>
      )}
    </div>
  );
}

/** A model call by its model: its attributes say less than the columns beside it. */
const labelOf = (run: RunModel, index: number): string =>
  run.type(index) === "llm" && !run.failed(index)
    ? run.model(index) || run.label(index)
    : run.label(index);

/** Mark the matching spans and their ancestors; null means all. */
function findVisible(run: RunModel, words: string, time: Range | null): Uint8Array | null {
  const found = matching(run, words);
  if (!found && !time) return null;
  const marked = new Uint8Array(run.count);
  for (let index = 0; index < run.count; index++) {
    if ((found && !found[index]) || !within(run, index, time)) continue;
    for (
      let above: number | null = index;
      above !== null && !marked[above];
      above = run.parent(above)
    )
      marked[above] = 1;
  }
  return marked;
}

/** Depth first, without recursion: a trace may be deeper than the stack. */
function shownRows(
  run: RunModel,
  folded: ReadonlySet<number>,
  visibleSpans: Uint8Array | null,
): number[] {
  const rows: number[] = [];
  const open = [...run.roots].reverse();
  while (open.length) {
    const index = open.pop()!;
    if (visibleSpans && !visibleSpans[index]) continue;
    rows.push(index);
    if (folded.has(run.number(index))) continue;
    const inside = run.children[index]!;
    for (let at = inside.length - 1; at >= 0; at--) open.push(inside[at]!);
  }
  return rows;
}
