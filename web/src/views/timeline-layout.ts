/**
 * The layout of the timeline: a lane per component, with rows in which no spans overlap and children
 * are below their parents. Pure; computed once per run.
 */

import type { RunModel } from "../model";

/** Rows per lane; spans that need more rows share the last one. */
const ROWS_MAX = 120;

export interface Row {
  /** Span indices, by start. */
  spans: number[];
}
export interface Lane {
  component: string;
  rows: Row[];
  count: number;
  failed: number;
  /** Spans that would have needed more rows. */
  crowded: number;
}
export interface CacheCall {
  index: number;
  /** Of the prompt, read from the cache: 0 to 1. */
  hit: number;
  /** The call before it had filled the cache, and this one read less than half of that. */
  bust: boolean;
}
export interface Layout {
  lanes: Lane[];
  /** Lane and row of each span: `lanes[laneOf[i]].rows[rowOf[i]]`. */
  laneOf: Int32Array;
  rowOf: Int32Array;
  cache: CacheCall[];
}

export function layOut(run: RunModel): Layout {
  const laneOf = new Int32Array(run.count);
  const rowOf = new Int32Array(run.count);
  const lanes: Lane[] = [];
  const byName = new Map<string, number>();
  const ends: Float64Array[] = [];
  for (const index of byStart(run)) {
    const component = run.component(index);
    let at = byName.get(component);
    if (at === undefined) {
      at = lanes.push({ component, rows: [], count: 0, failed: 0, crowded: 0 }) - 1;
      byName.set(component, at);
      ends.push(new Float64Array(ROWS_MAX).fill(-Infinity));
    }
    const lane = lanes[at]!;
    const parent = run.parent(index);
    const least = parent !== null && laneOf[parent] === at ? rowOf[parent]! + 1 : 0;
    const row = place(ends[at]!, least, run.start(index), run.end(index), lane);
    while (lane.rows.length <= row) lane.rows.push({ spans: [] });
    lane.rows[row]!.spans.push(index);
    laneOf[index] = at;
    rowOf[index] = row;
    lane.count++;
    if (run.failed(index)) lane.failed++;
  }
  return { lanes, laneOf, rowOf, cache: cacheCalls(run) };
}

function place(ends: Float64Array, least: number, start: number, end: number, lane: Lane): number {
  let row = Math.min(least, ROWS_MAX - 1);
  while (row < ROWS_MAX - 1 && ends[row]! > start) row++;
  if (ends[row]! > start) lane.crowded++;
  ends[row] = Math.max(ends[row]!, end);
  return row;
}

/** Sort by start; of two spans that start together, the parent comes first. */
function byStart(run: RunModel): number[] {
  const order = Array.from({ length: run.count }, (_, index) => index);
  return order.sort(
    (a, b) => run.start(a) - run.start(b) || run.depth[a]! - run.depth[b]! || a - b,
  );
}

/** Calls of one agent share a prompt; those of another inside it have their own. */
function agentOf(run: RunModel, index: number): number {
  let at: number | null = run.parent(index);
  while (at !== null && run.type(at) !== "agent" && run.type(at) !== "run") at = run.parent(at);
  return at ?? -1;
}

function cacheCalls(run: RunModel): CacheCall[] {
  const filled = new Map<string, number>();
  const calls: CacheCall[] = [];
  for (let index = 0; index < run.count; index++) {
    if (run.cacheRead(index) === null && run.cacheWrite(index) === null) continue;
    const read = run.cacheRead(index) ?? 0;
    const written = run.cacheWrite(index) ?? 0;
    const all = Math.max(run.inputTokens(index) ?? 0, read, 1);
    const key = `${agentOf(run, index)} ${run.model(index)}`;
    const before = filled.get(key) ?? 0;
    calls.push({ index, hit: Math.min(1, read / all), bust: before > 0 && read < before / 2 });
    filled.set(key, read + written);
  }
  return calls;
}
