/** Failed runs in groups of one cause: how often, when, the newest example, and what sets it apart. */

import "./failures.css";
import { useEffect, useState } from "preact/hooks";
import { Copy } from "../parts/copy";
import { ago, count, moment, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { adjust, href, route } from "../router";
import type { FailureGroup, GroupsData } from "../types";
import { useAnswer } from "../use-query";
import { splitTyped } from "./filter-text";

const RANGES: [string, string][] = [
  ["", "All time"],
  ["1d", "24 h"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];
const TYPING_MS = 400;
/** The server answers after this time with the runs that it has examined. */
const ANSWER_S = 2;
/** After this many such answers, the rest is one question: many use up the budget of a key. */
const ANSWERS_MAX = 15;
const REST_S = 600;
const RUNS_SHOWN = 8;
const DIFFERENCES_SHOWN = 3;
const COMPARED_MAX = 8;

export function Failures() {
  const { params } = route.value;
  const [q, since, like] = ["q", "since", "like"].map((name) => params.get(name) ?? "");
  const words = useSettled(splitTyped(q!).filter);
  useEffect(() => void (document.title = "Failures · Vestige"), []);
  return (
    <div class="failures column grow">
      <div class="home-bar">
        <h1>{like ? `Failures like ${oneLine(like, 20)}` : "Failures"}</h1>
        {like ? (
          <a class="button" href={href("groups")}>
            Show all groups
          </a>
        ) : (
          <input
            type="search"
            class="grow"
            aria-label="Filter runs"
            placeholder="Filter runs, e.g. name:triage tool:search"
            spellcheck={false}
            value={q}
            onInput={(event) => adjust({ q: event.currentTarget.value || null })}
          />
        )}
        <label class="pick">
          <span class="sr">Time range</span>
          <select
            value={since}
            onChange={(event) => adjust({ since: event.currentTarget.value || null })}
          >
            {RANGES.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Found key={like} filter={words} since={since!} like={like!} />
    </div>
  );
}

function Found({ filter, since, like }: { filter: string; since: string; like: string }) {
  const [answers, setAnswers] = useState(0);
  const { data, error, loading, again } = useAnswer<GroupsData>("groups", {
    filter,
    since,
    like,
    seconds: answers < ANSWERS_MAX ? ANSWER_S : REST_S,
  });
  const left = data?.unexamined ?? 0;
  useEffect(() => {
    if (!left || loading) return;
    setAnswers(answers + 1);
    again(); // The next answer has more.
  }, [data, loading]);
  if (error)
    return (
      <div class="page-pad">
        <Failed error={error} again={again} />
      </div>
    );
  if (!data) return <Loading what="the failures of all runs" />;
  return <Groups data={data} stale={loading} isOne={like !== ""} />;
}

/** A text once its typing has paused: grouping examines every run. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

function Groups({ data, stale, isOne }: { data: GroupsData; stale: boolean; isOne: boolean }) {
  const failed = data.groups.reduce((sum, group) => sum + group.count, 0);
  const runs = `${count(data.examined)} ${data.examined === 1 ? "run" : "runs"}`;
  const left = data.unexamined
    ? `Examining runs: ${count(data.examined)} of ${count(data.examined + data.unexamined)}…`
    : "";
  if (!data.groups.length && left)
    return (
      <div class="empty" role="status">
        {left}
      </div>
    );
  if (!data.groups.length)
    return <Empty>{isOne ? "This run did not fail" : `No failures in ${runs}`}</Empty>;
  return (
    <>
      <div class="totals" role="status" aria-busy={stale || left !== ""}>
        {!isOne && (
          <span>
            <b>{count(data.groups.length)}</b> {data.groups.length === 1 ? "cause" : "causes"}
          </span>
        )}
        <span>
          <b>{count(failed)}</b> of {runs} {isOne ? "" : "failed or have a warning"}
        </span>
        {left && <span class="quiet">{left}</span>}
        {data.more && <span class="quiet">Only the newest {runs} were examined</span>}
      </div>
      <ol class="groups scroll grow" tabIndex={0} aria-label="Groups of failures">
        {data.groups.map((group) => (
          <GroupCard key={group.id} group={group} isOpen={isOne} />
        ))}
      </ol>
    </>
  );
}

function GroupCard({ group, isOpen }: { group: FailureGroup; isOpen: boolean }) {
  const [open, setOpen] = useState(isOpen);
  return (
    <li class="group">
      <button
        type="button"
        class="plain group-head"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        <span aria-hidden="true">{open ? "▾" : "▸"}</span>
        <span class="group-count">
          <b>{count(group.count)}</b>{" "}
          <span class="quiet">{group.count === 1 ? "run" : "runs"}</span>
        </span>
        <span class={open ? "trace title" : "trace title cut"}>
          {oneLine(group.description, 300)}
        </span>
        <span class="group-trend">
          {group.trend.filter(Boolean).length > 1 && <Trend counts={group.trend} />}
        </span>
        <span class="quiet nowrap group-seen">{agoNs(group.last_ns)}</span>
      </button>
      {open && <GroupDetails group={group} all={isOpen} />}
    </li>
  );
}

function GroupDetails({ group, all: isOne }: { group: FailureGroup; all: boolean }) {
  const [all, setAll] = useState(isOne);
  const shown = all ? group.runs : group.runs.slice(0, RUNS_SHOWN);
  const hidden = group.runs.length - shown.length;
  const [run = "", span = ""] = (group.cause ?? group.newest).split(".");
  return (
    <div class="group-text">
      <p class="quiet">{seen(group)}</p>
      {group.differences.slice(0, DIFFERENCES_SHOWN).map((found) => (
        <p key={`${found.kind} ${found.what}`} class="apart">
          <span class="quiet">{found.kind}</span>{" "}
          <span class="mono trace">{oneLine(found.what, 100)}</span>{" "}
          <span class="quiet">
            {inRuns(found.a)} failed, {inRuns(found.b)} successful runs
          </span>
        </p>
      ))}
      <p class="rowline wrap group-runs">
        <a class="link" href={href("run", run, { span })}>
          Go to the failure in {run}
        </a>
        {shown.map((id) => (
          <a key={id} class="mono" href={href("run", id)}>
            {id}
          </a>
        ))}
        {hidden > 0 && (
          <button type="button" class="plain link" onClick={() => setAll(true)}>
            {count(hidden)} more
          </button>
        )}
        {group.runs.length > 1 && (
          <a
            class="button"
            href={href("compare", "", { runs: group.runs.slice(0, COMPARED_MAX).join(",") })}
          >
            Compare
          </a>
        )}
        <Copy label="Copy command" text={`vestige groups --like ${group.newest}`} />
      </p>
    </div>
  );
}

const agoNs = (ns: number): string => ago(new Date(ns / 1e6).toISOString());

/** `11/12` is a share of runs; `~3` is the median number in each. */
const inRuns = (text: string): string =>
  text.startsWith("~") ? `about ${text.slice(1)} in` : text.replace("/", " of ");

function seen(group: FailureGroup): string {
  const [first, last] = [agoNs(group.first_ns), agoNs(group.last_ns)];
  const versions = group.versions.slice(0, 3).join(", ");
  return [
    first === last ? `Seen ${last}` : `First ${first}, last ${last}`,
    group.place ? oneLine(group.place, 100) : "",
    versions ? `commits ${oneLine(versions, 60)}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/** How often in equal intervals from the oldest to the newest run. */
function Trend({ counts }: { counts: number[] }) {
  const most = Math.max(...counts, 1);
  return (
    <span class="trend" role="img" aria-label={`Over time: ${counts.join(", ")}`}>
      {counts.map((value, at) => (
        <i key={at} style={{ height: value ? `${Math.max(12, (value / most) * 100)}%` : "1px" }} />
      ))}
    </span>
  );
}

/** On a run's page: how many other runs failed for the same reason. */
export function MoreLikeThis({ run }: { run: string }) {
  const { data } = useAnswer<GroupsData>("groups", { like: run });
  const group = data?.groups[0];
  const others = group ? group.runs.filter((id) => id !== run) : [];
  if (!group || !others.length) return null;
  const newest = group.last_ns ? moment(group.last_ns / 1e6) : "";
  return (
    <a class="link more-like" href={href("groups", "", { like: run })} title={`Newest: ${newest}`}>
      {count(others.length)} more like this
    </a>
  );
}
