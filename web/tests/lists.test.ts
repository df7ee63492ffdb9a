import { expect, test } from "vitest";
import type { RunModel } from "../src/model";
import { mergeParents } from "../src/pages/merge-hits";
import { type Bucket, mergeBuckets } from "../src/pages/trend-buckets";
import type { Hit, StepRow } from "../src/types";
import { rollUpSpans, rollUpSteps, sumByAgent, sumOf } from "../src/views/roll-up";
import { rulerLabel } from "../src/views/timeline-canvas";

const hit = (short_id: string, part: string, before: string): Hit => ({
  ...({} as Hit),
  short_id,
  part: part as Hit["part"],
  before,
  match: "overloaded",
  after: "_error",
});

test("an error on a span and its parents is one match; bodies stay apart", () => {
  const rows = mergeParents([
    hit("r1.s9", "attrs", "type: "),
    hit("r1.s8", "attrs", "type: "),
    hit("r1.s1", "attrs", "type: "),
    hit("r1.s2", "output", "type: "),
    hit("r1.s3", "output", "type: "),
    hit("r2.s1", "attrs", "type: "),
  ]);

  expect(rows.map((row) => [row.hit.short_id, row.others])).toEqual([
    ["r1.s9", 2],
    ["r1.s2", 0],
    ["r1.s3", 0],
    ["r2.s1", 0],
  ]);
});

const day = (at: string, runs: number, p50_ms: number | null): Bucket => ({
  ...({} as Bucket),
  at,
  runs,
  errors: 0,
  input_tokens: runs,
  output_tokens: 1,
  cost_usd: 0.5,
  p50_ms,
  p95_ms: p50_ms,
});

test("days are joined into few bars that begin with the first run", () => {
  const days = [
    ...Array.from({ length: 50 }, (_, at) => day(`empty ${at}`, 0, null)),
    ...Array.from({ length: 20 }, (_, at) => day(`day ${at}`, 2, at)),
  ];
  const bars = mergeBuckets(days, 10);

  expect(bars.length).toBe(10);
  expect(bars[0]).toMatchObject({ at: "day 0", runs: 4, input_tokens: 4, cost_usd: 1, p50_ms: 1 });
  expect(mergeBuckets([], 10)).toEqual([]);
});

test("all labels of a ruler have one format", () => {
  const labels = (step: number, to: number): string[] =>
    [0, 1, 4].map((at) => rulerLabel(at * step, step, to));

  expect(labels(20e6, 190e6)).toEqual(["+0:00", "+0:20", "+1:20"]);
  expect(labels(2e6, 10e6)).toEqual(["+0 s", "+2 s", "+8 s"]);
  expect(labels(500_000, 4e6)).toEqual(["+0.0 s", "+0.5 s", "+2.0 s"]);
  expect(labels(1200e6, 8000e6)).toEqual(["+0:00:00", "+0:20:00", "+1:20:00"]);
});

const step = (
  number: number,
  span: string,
  parent: number | null,
  cost_usd: number | null,
  agent = "desk",
) => ({
  ...({} as StepRow),
  agent,
  duration_ns: 1_000,
  number,
  span,
  parent,
  cost_usd,
  input_tokens: 10,
  output_tokens: 1,
});

test("the cost of an agent is that of the calls inside it, each once", () => {
  // s1 run > s2 call, s3 agent > (s4 call, s5 agent > s6 call); s7 call without a price
  const parents = [null, 0, 0, 2, 2, 4, 0];
  const run = {
    ofShortId: (id: string | null) => (id ? Number(id.split(".s")[1]) - 1 : undefined),
    parent: (index: number) => parents[index] ?? null,
  } as unknown as RunModel;
  const steps = [
    step(1, "r1.s2", null, 1),
    step(2, "r1.s4", 1, 2),
    step(3, "r1.s6", 2, 4),
    step(4, "r1.s7", null, null),
  ];

  const spans = rollUpSpans(run, steps);
  expect(spans.get(0)).toEqual({ usd: 7, complete: false, tokens: 44 });
  expect(spans.get(2)).toEqual({ usd: 6, complete: true, tokens: 22 });
  expect(spans.get(4)).toEqual({ usd: 4, complete: true, tokens: 11 });
  expect(spans.get(6)).toEqual({ usd: 0, complete: false, tokens: 11 });
  const numbers = rollUpSteps(steps);
  expect([1, 2, 3].map((number) => numbers.get(number)?.usd)).toEqual([7, 6, 4]);
  expect(sumOf(numbers, [2])).toEqual({ usd: 6, complete: true, tokens: 22 });
  expect(sumOf(numbers, [5])).toBe(null);
});

test("each agent has the totals of its own calls", () => {
  const steps = [
    step(1, "r1.s2", null, 1),
    step(2, "r1.s4", 1, 2, "fraud"),
    step(3, "r1.s6", 2, 4),
  ];

  expect(sumByAgent(steps)).toMatchObject([
    { agent: "desk", steps: 2, usd: 5, tokens: 22, duration_ns: 2_000 },
    { agent: "fraud", steps: 1, usd: 2, tokens: 11, duration_ns: 1_000 },
  ]);
});
