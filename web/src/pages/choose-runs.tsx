/** Choose two runs to compare: recent ones, and those of the same task first. */

import { useEffect, useState } from "preact/hooks";
import { Status } from "../parts/badges";
import { ago, oneLine } from "../parts/format";
import { Failed, Loading } from "../parts/placeholders";
import { go, href } from "../router";
import type { ListData, RunRow } from "../types";
import { useAnswer } from "../use-query";
import { taskOf } from "./run-columns";

const RECENT = 100;

export function ChooseRuns({ a, b }: { a: string; b: string }) {
  const [left, setLeft] = useState(a);
  const [right, setRight] = useState(b);
  const [words, setWords] = useState("");
  const { data, error } = useAnswer<ListData>("list", { filter: words, limit: RECENT, cost: true });
  useEffect(() => void (document.title = "Compare · Vestige"), []);
  const runs = data?.runs ?? [];
  const baseline = runs.find((run) => run.short_id === left);
  const same = baseline ? runs.filter((run) => run !== baseline && isSameTask(run, baseline)) : [];
  const rest = runs.filter((run) => run !== baseline && !same.includes(run));
  const pick = (run: RunRow): void => {
    if (!left) setLeft(run.short_id);
    else go(href("compare", "", { a: left, b: run.short_id }));
  };
  return (
    <div class="column grow">
      <form
        class="page-pad rowline wrap"
        onSubmit={(event) => {
          event.preventDefault();
          go(href("compare", "", { a: left, b: right }));
        }}
      >
        <h1>Compare two runs</h1>
        <label>
          Baseline{" "}
          <input
            type="text"
            value={left}
            placeholder="r6"
            onInput={(event) => setLeft(event.currentTarget.value)}
          />
        </label>
        <label>
          Compare to{" "}
          <input
            type="text"
            value={right}
            placeholder="r7"
            onInput={(event) => setRight(event.currentTarget.value)}
          />
        </label>
        <button type="submit" disabled={!left || !right}>
          Compare
        </button>
        <input
          type="search"
          class="grow"
          aria-label="Search runs"
          placeholder="Search runs"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </form>
      {error && <Failed error={error} />}
      {!data && !error && <Loading what="runs" />}
      <div class="scroll grow page-pad" tabIndex={0} role="region" aria-label="Runs to choose">
        <p class="quiet">
          {left ? `Select the run to compare with ${left}.` : "Select the baseline."}
        </p>
        {same.length > 0 && <Rows title="Same task" runs={same} pick={pick} />}
        {rest.length > 0 && <Rows title="Recent" runs={rest} pick={pick} />}
      </div>
    </div>
  );
}

function isSameTask(run: RunRow, baseline: RunRow): boolean {
  const task = taskOf(baseline);
  return task ? taskOf(run) === task : run.name === baseline.name;
}

function Rows({
  title,
  runs,
  pick,
}: {
  title: string;
  runs: RunRow[];
  pick: (run: RunRow) => void;
}) {
  return (
    <section>
      <h2>{title}</h2>
      <ul class="run-choices">
        {runs.map((run) => (
          <li key={run.id}>
            <button type="button" class="plain" onClick={() => pick(run)}>
              <Status value={run.outcome} brief />
              <span class="mono quiet">{run.short_id}</span>
              <span class="cut trace">{oneLine(taskOf(run), 120) || oneLine(run.name, 80)}</span>
              <span class="quiet nowrap">{ago(run.started_at)}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
