/** Spans merged by call path, for the flame view; and the totals of a time range. Pure. */

import type { RunModel } from "../model";

export interface FlameNode {
  name: string;
  type: string;
  depth: number;
  /** Time of all spans of this path inside the range. */
  total_us: number;
  count: number;
  failed: number;
  /** The longest span of this path. */
  longest: number;
  /** Position of the bar: 0 to 1. */
  left: number;
  width: number;
  children: FlameNode[];
}

interface Range {
  from_us: number;
  to_us: number;
}

/** Bars narrower than this are left out. */
const LEAST_WIDTH = 0.002;
const DEPTH_MAX = 60;

/** Numbered steps are one path: a framework numbers those of each agent from 1. */
const unnumbered = (name: string): string => (/^step[ _#-]?\d+$/i.test(name) ? "Steps" : name);

const overlap = (run: RunModel, index: number, range: Range): number =>
  Math.max(0, Math.min(run.end(index), range.to_us) - Math.max(run.start(index), range.from_us));

/** Merge the spans of a range: siblings of one name become one bar, the longest first. */
export function mergeSpans(run: RunModel, range: Range): FlameNode[] {
  const rows: FlameNode[] = [];
  const place = (
    indices: number[],
    depth: number,
    left: number,
    width: number,
    available_us: number,
  ): FlameNode[] => {
    if (depth >= DEPTH_MAX) return [];
    const merged = new Map<string, { node: FlameNode; spans: number[] }>();
    for (const index of indices) {
      const us = overlap(run, index, range);
      if (us <= 0) continue;
      const name = unnumbered(run.name(index));
      const key = `${run.type(index)} ${name}`;
      let found = merged.get(key);
      if (!found) {
        const node: FlameNode = {
          name,
          type: run.type(index),
          depth,
          total_us: 0,
          count: 0,
          failed: 0,
          longest: index,
          left: 0,
          width: 0,
          children: [],
        };
        merged.set(key, (found = { node, spans: [] }));
      }
      found.spans.push(index);
      found.node.total_us += us;
      found.node.count++;
      if (run.failed(index)) found.node.failed++;
      if (us > overlap(run, found.node.longest, range)) found.node.longest = index;
    }
    const groups = [...merged.values()].sort((one, two) => two.node.total_us - one.node.total_us);
    const sum = groups.reduce((total, group) => total + group.node.total_us, 0);
    // Spans that ran at the same time may add up to more than their parent: they share its width.
    const room_us = Math.max(sum, available_us);
    let at = left;
    for (const { node, spans } of groups) {
      node.left = at;
      node.width = room_us ? (node.total_us / room_us) * width : 0;
      at += node.width;
      if (node.width < LEAST_WIDTH) continue;
      rows.push(node);
      node.children = place(
        spans.flatMap((index) => run.children[index]!),
        depth + 1,
        node.left,
        node.width,
        node.total_us,
      );
    }
    return groups.map((group) => group.node);
  };
  place(run.roots, 0, 0, 1, 0);
  return rows;
}

export interface Totals {
  spans: number;
  failed: number;
  calls: number;
  tools: number;
  tokens: number;
}

/** Add up the spans that run inside a range. A model call inside another is the same call. */
export function addUp(run: RunModel, range: Range): Totals {
  const totals: Totals = { spans: 0, failed: 0, calls: 0, tools: 0, tokens: 0 };
  for (let index = 0; index < run.count; index++) {
    if (run.start(index) > range.to_us || run.end(index) < range.from_us) continue;
    totals.spans++;
    if (run.failed(index)) totals.failed++;
    if (run.type(index) === "tool") totals.tools++;
    const parent = run.parent(index);
    const repeated =
      parent !== null && run.type(parent) === "llm" && run.inputTokens(parent) !== null;
    if (run.type(index) !== "llm" || repeated) continue;
    totals.calls++;
    totals.tokens += (run.inputTokens(index) ?? 0) + (run.outputTokens(index) ?? 0);
  }
  return totals;
}
