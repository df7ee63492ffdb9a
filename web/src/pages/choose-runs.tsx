/** Choose the runs to compare: the one that is known, then those of its task, then recent ones. */

import { useEffect, useState } from "preact/hooks";
import { Status } from "../parts/badges";
import { ago, durationMs, oneLine, price } from "../parts/format";
import { Failed, Loading } from "../parts/placeholders";
import { go, href } from "../router";
import type { ListData, OverviewData, RunRow } from "../types";
import { useAnswer } from "../use-query";
import { useSameTask } from "../views/same-task";
import { taskOf } from "./run-columns";

const RECENT = 100;

export function ChooseRuns({ a, b }: { a: string; b: string }) {
  const [words, setWords] = useState("");
  const { data, error } = useAnswer<ListData>("list", { filter: words, limit: RECENT, cost: true });
  const known = a || b;
  const same = useSameTask(known || null);
  useEffect(() => void (document.title = "Compare · Vestige"), []);
  const ids = new Set(same.data?.runs.map((run) => run.short_id));
  const rest = (data?.runs ?? []).filter(
    (run) => run.short_id !== known && (words || !ids.has(run.short_id)),
  );
  const pick = (id: string): void =>
    go(href("compare", "", b && !a ? { a: id, b } : a ? { a, b: id } : { a: id }));
  const isUnknown = same.error?.status === 404;
  return (
    <div class="column grow">
      <form
        class="page-pad rowline wrap"
        onSubmit={(event) => {
          event.preventDefault();
          const id = words.trim();
          if (/^r\d+$/.test(id)) pick(id);
        }}
      >
        <h1>Compare two runs</h1>
        <input
          type="search"
          class="grow"
          aria-label="Search runs"
          placeholder="Search runs, or type an id such as r7"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </form>
      {known && !isUnknown && <Known key={known} id={known} isBaseline={a !== ""} />}
      {error && <Failed error={error} />}
      {same.error && <Failed error={same.error} />}
      {!data && !error && <Loading what="runs" />}
      <div class="scroll grow page-pad" tabIndex={0} role="region" aria-label="Runs to choose">
        <p class="quiet">
          {known ? `Select the run to compare with ${known}.` : "Select the baseline."}
        </p>
        {same.data && same.data.runs.length > 0 && !words && (
          <Rows title="Same task" runs={same.data.runs} pick={pick} />
        )}
        {rest.length > 0 && <Rows title={words ? "Found" : "Recent"} runs={rest} pick={pick} />}
      </div>
    </div>
  );
}

/** The run that is chosen already, with its task. */
function Known({ id, isBaseline }: { id: string; isBaseline: boolean }) {
  const { data } = useAnswer<OverviewData>("overview", { id });
  return (
    <div class="page-pad rowline wrap known-run" role="group" aria-label="Chosen run">
      <span class="quiet">{isBaseline ? "Baseline" : "Compared"}</span>
      <a class="mono" href={href("run", id)}>
        {id}
      </a>
      {data && (
        <>
          <Status value={data.run.outcome} />
          <b class="trace cut">{oneLine(data.title || data.run.name, 160)}</b>
          <span class="quiet nowrap">{ago(data.run.started_at)}</span>
        </>
      )}
      <a class="link" href={href("compare")}>
        Change
      </a>
    </div>
  );
}

interface RowsProps {
  title: string;
  runs: RunRow[];
  pick: (id: string) => void;
}

function Rows({ title, runs, pick }: RowsProps) {
  return (
    <section>
      <h2>{title}</h2>
      <ul class="run-choices">
        {runs.map((run) => (
          <li key={run.id}>
            <button type="button" class="plain" onClick={() => pick(run.short_id)}>
              <Status value={run.outcome} brief />
              <span class="mono quiet">{run.short_id}</span>
              <span class="cut trace">{oneLine(taskOf(run), 120) || oneLine(run.name, 80)}</span>
              <span class="quiet nowrap wide-only">{durationMs(run.duration_ms || null)}</span>
              <span class="quiet nowrap wide-only">
                {price(run.cost_usd, run.cost_complete !== false)}
              </span>
              <span class="quiet nowrap when">{ago(run.started_at)}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
