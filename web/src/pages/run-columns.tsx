/** The columns of the table of runs: heading, order of the server, and cell. */

import type { ComponentChildren } from "preact";
import { Status } from "../parts/badges";
import { ago, count, dateTime, durationMs, moment, oneLine, price, short } from "../parts/format";
import { adjust, href } from "../router";
import type { Hit, RunRow } from "../types";
import { Excerpt } from "./excerpt";
import { hitAddress } from "./hit-link";

export interface Column {
  id: string;
  label: string;
  /** The server's name of this order; absent if the column cannot be sorted. */
  sort?: string;
  /** True if the usual order is ascending. */
  ascending?: boolean;
  width: string;
  right?: boolean;
  /** False: hidden until it is chosen. */
  shown: boolean;
  cell: (run: RunRow, view: RowView) => ComponentChildren;
}

/** What a row shows beside the run itself. */
export interface RowView {
  finding: string;
  severity: string;
  grouped: boolean;
  /** The words that were searched. */
  words: string;
}

const elapsed = (run: RunRow): number | null =>
  run.duration_ms ?? (run.outcome === "running" ? Date.now() - Date.parse(run.started_at) : null);

export const COLUMNS: Column[] = [
  {
    id: "run",
    label: "Run",
    sort: "name",
    ascending: true,
    width: "minmax(90px, 1fr)",
    shown: true,
    cell: (run, view) => (
      <>
        <span class="cut">
          {oneLine(run.name, 160) || "Untitled"}
          <Marks run={run} />
        </span>
        <span class="second">
          <span class="mono">{run.short_id}</span>
          {run.conversation_id && <Conversation run={run} grouped={view.grouped} />}
        </span>
      </>
    ),
  },
  {
    id: "task",
    label: "Task → result",
    width: "minmax(160px, 4fr)",
    shown: true,
    cell: (run, view) => (
      <>
        <a class="cut trace title" href={href("run", run.short_id)} tabIndex={-1}>
          {oneLine(taskOf(run), 200) || oneLine(run.name, 160) || "Untitled"}
        </a>
        {run.match ? (
          <Match hit={run.match} words={view.words} />
        ) : (
          <span class="second cut trace">{resultOf(run)}</span>
        )}
      </>
    ),
  },
  {
    id: "finding",
    label: "What went wrong",
    width: "minmax(110px, 2.4fr)",
    shown: true,
    // Empty without a finding: not every successful run has been checked.
    cell: (run, view) =>
      (view.finding || run.latest_note) && (
        <>
          {view.finding && (
            <span class={`cut2 trace sev-${view.severity}`} title={oneLine(view.finding, 300)}>
              {oneLine(view.finding, 200)}
            </span>
          )}
          {run.latest_note && (
            <span class="second cut trace note-line" title={oneLine(run.latest_note, 300)}>
              ✎ {oneLine(run.latest_note, 160)}
            </span>
          )}
        </>
      ),
  },
  {
    id: "started",
    label: "Started",
    sort: "started",
    width: "88px",
    shown: true,
    cell: (run) => {
      const [day, time] = dateTime(run.started_at).split(", ");
      const isOld = ago(run.started_at) === day;
      return (
        <span title={moment(run.started_at)}>
          {ago(run.started_at)}
          {isOld && <span class="second">{time}</span>}
        </span>
      );
    },
  },
  {
    id: "duration",
    label: "Duration",
    sort: "duration",
    width: "82px",
    right: true,
    shown: true,
    cell: (run) => (elapsed(run) === 0 ? "" : durationMs(elapsed(run))),
  },
  {
    id: "calls",
    label: "Calls",
    sort: "calls",
    width: "56px",
    right: true,
    shown: true,
    cell: (run) => (run.model_calls ? count(run.model_calls) : ""),
  },
  {
    id: "spans",
    label: "Spans",
    sort: "spans",
    width: "64px",
    right: true,
    shown: false,
    cell: (run) => count(run.span_count),
  },
  {
    id: "errors",
    label: "Errors",
    sort: "errors",
    width: "60px",
    right: true,
    shown: false,
    cell: (run) => (run.error_count ? <span class="bad">{count(run.error_count)}</span> : ""),
  },
  {
    id: "tokens",
    label: "Tokens",
    sort: "tokens",
    width: "64px",
    right: true,
    shown: true,
    cell: (run) => (run.tokens ? short(run.tokens) : ""),
  },
  {
    id: "cost",
    label: "Cost",
    sort: "cost",
    width: "70px",
    right: true,
    shown: true,
    cell: (run) => price(run.cost_usd, run.cost_complete !== false),
  },
];

/** The outcome comes first and cannot be hidden. */
export const OUTCOME: Column = {
  id: "outcome",
  label: "Outcome",
  sort: "outcome",
  ascending: true,
  width: "28px",
  shown: true,
  cell: (run) => <Status value={run.outcome} brief />,
};

function resultOf(run: RunRow): string {
  if (["ok", "unknown"].includes(run.outcome) && run.result) return `→ ${oneLine(run.result, 200)}`;
  return run.outcome === "running" ? "" : "no result";
}

/** Where the run has the searched words, as a link to it. */
function Match({ hit, words }: { hit: Hit; words: string }) {
  const span = hit.short_id.split(".")[1];
  return (
    <a class="second cut trace" href={hitAddress(hit, words)} tabIndex={-1}>
      {span && <span class="mono">{span} </span>}
      <Excerpt hit={hit} beforeMax={30} />
    </a>
  );
}

/** The task in few words: the title if the name says nothing, else the task itself. */
export function taskOf(run: RunRow): string {
  if (run.title && run.title !== run.name) return run.title;
  return run.task === run.name ? "" : (run.task ?? "").replace(/^#+ |\*\*/g, "");
}

function Marks({ run }: { run: RunRow }) {
  return (
    <>
      {run.pinned && (
        <span class="quiet" title="Pinned">
          {" "}
          ◆<span class="sr">pinned</span>
        </span>
      )}
      {(run.fork_of ?? run.replay_of) && (
        <span class="quiet">
          {" "}
          {run.fork_of ? "fork" : "replay"} of {oneLine(run.fork_of ?? run.replay_of ?? "", 40)}
        </span>
      )}
      {run.note_count ? (
        <span class="note-mark" title={oneLine(run.latest_note ?? "", 300)}>
          {" "}
          ✎{run.note_count > 1 ? run.note_count : ""}
          <span class="sr">
            {run.note_count} {run.note_count === 1 ? "note" : "notes"}
          </span>
        </span>
      ) : null}
    </>
  );
}

/** The size of a grouped conversation, or a button that filters by it. */
function Conversation({ run, grouped }: { run: RunRow; grouped: boolean }) {
  const id = run.conversation_id!;
  const only = (): void => adjust({ group: null, q: `conversation:"${id.replaceAll('"', "")}"` });
  const label = run.group
    ? `${count(run.group.runs)} ${run.group.runs === 1 ? "run" : "runs"}${run.group.failed ? `, ${count(run.group.failed)} failed` : ""}`
    : oneLine(id, 24);
  return (
    <button
      type="button"
      class="plain conversation"
      title="Show only this conversation"
      tabIndex={-1}
      onClick={only}
    >
      {grouped ? label : `⌁ ${label}`}
    </button>
  );
}
