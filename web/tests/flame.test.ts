import { expect, test } from "vitest";
import { addUp, mergeSpans } from "../src/views/flame-tree";

/** A run of a step with two tool calls of one name, and a model call that repeats itself. */
const spans = [
  { name: "run", type: "run", parent: null, start: 0, end: 100 },
  { name: "step", type: "step", parent: 0, start: 0, end: 100 },
  { name: "search", type: "tool", parent: 1, start: 0, end: 20 },
  { name: "search", type: "tool", parent: 1, start: 20, end: 60 },
  { name: "chat", type: "llm", parent: 1, start: 60, end: 100, tokens: 7 },
  { name: "chat", type: "llm", parent: 4, start: 60, end: 90, tokens: 7 },
];
const run = {
  count: spans.length,
  roots: [0],
  children: spans.map((_, at) => spans.flatMap((one, place) => (one.parent === at ? [place] : []))),
  name: (at: number) => spans[at]!.name,
  type: (at: number) => spans[at]!.type,
  start: (at: number) => spans[at]!.start,
  end: (at: number) => spans[at]!.end,
  parent: (at: number) => spans[at]!.parent,
  failed: (at: number) => at === 3,
  inputTokens: (at: number) => spans[at]!.tokens ?? null,
  outputTokens: () => null,
} as unknown as Parameters<typeof mergeSpans>[0];
const all = { from_us: 0, to_us: 100 };

test("spans of one name and path are one bar, the longest first", () => {
  const bars = mergeSpans(run, all);
  const search = bars.find((bar) => bar.name === "search")!;
  expect(search).toMatchObject({ total_us: 60, count: 2, failed: 1, longest: 3, depth: 2 });
  expect(search.left).toBe(0);
  expect(search.width).toBeCloseTo(0.6);
});

test("a range adds up what runs inside it, and a repeated call once", () => {
  expect(addUp(run, all)).toEqual({ spans: 6, failed: 1, calls: 1, tools: 2, tokens: 7 });
  expect(addUp(run, { from_us: 0, to_us: 10 })).toMatchObject({ spans: 3, tools: 1, tokens: 0 });
});
