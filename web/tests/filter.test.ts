import { expect, test } from "vitest";
import { freeWords, splitTyped } from "../src/pages/filter-text";
import { sumRuns } from "../src/pages/sum-runs";
import type { RunRow } from "../src/types";

test.each([
  ["is:failed rate", "is:failed rate", ""],
  ['is:failed "rate limit', "is:failed", '"rate limit'],
  ['"rate limit" is:failed', '"rate limit" is:failed', ""],
  ["note:", "", "note:"],
  ["is:failed note: tool:search", "is:failed tool:search", "note:"],
  ['tool:"web s', "", 'tool:"web s'],
  ["cost>", "", "cost>"],
  ["cost>0.", "", "cost>0."],
  ["cost>0.1", "cost>0.1", ""],
  ["is:fa", "", "is:fa"],
  ["is:nonsense", "is:nonsense", ""],
  ["-", "", "-"],
  ["#", "", "#"],
  ['don"t stop', 'don"t stop', ""],
  ["  two  spaces ", "  two  spaces ", ""],
])("of the filter %j, %j can be asked", (typed, filter, open) => {
  expect(splitTyped(typed)).toEqual({ filter, open });
});

test("a tag is not a text to search for", () => {
  expect(freeWords("#culprit refund #12")).toBe("refund #12");
});

const run = (cost_usd: number | null, cost_complete: boolean, model_calls = 1): RunRow => ({
  ...({} as RunRow),
  tokens: 10,
  model_calls,
  cost_usd,
  cost_complete,
});

test("a sum is incomplete if a run is, or if a run with calls has no price", () => {
  expect(sumRuns([run(1, true), run(0.5, true)])).toEqual({
    runs: 2,
    calls: 2,
    tokens: 20,
    cost_usd: 1.5,
    complete: true,
  });
  expect(sumRuns([run(1, true), run(0.5, false)]).complete).toBe(false);
  expect(sumRuns([run(1, true), run(null, true)]).complete).toBe(false);
  expect(sumRuns([run(1, true), run(null, true, 0)])).toMatchObject({
    cost_usd: 1,
    complete: true,
  });
  expect(sumRuns([run(null, true)]).cost_usd).toBeNull();
});
