/** The list of runs as it grows: pages as one scrolls, live rows as they happen. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, get, listen, type Params } from "../api";
import { useReturn } from "../connection";
import type { CheckData, Finding, ListData, RunRow } from "../types";
import { asApiError, isUnreachable } from "../use-query";

const PAGE = 200;
/** Live events come in bursts: the list is requested for once for all of them. */
const QUIET_MS = 700;
/** Rows that are checked for their top finding; long runs are skipped, because they take seconds. */
const EXAMINED_ROWS = 60;
const EXAMINED_SPANS = 5_000;

export interface Runs {
  rows: RunRow[] | null;
  error: ApiError | null;
  more: boolean;
  looking: boolean;
  /** True while the rows are still those of a previous filter or order. */
  stale: boolean;
  /** What the words of the filter select, for people to read. */
  understood: string;
  /** Counts live updates, after which totals are stale. */
  changes: number;
  loadMore: () => void;
}

/** The order of the list: a column of the server, and whether it is reversed. */
export interface Order {
  sort: string;
  reverse: boolean;
}

export interface ListOptions extends Order {
  filter: string;
  group: boolean;
  all: boolean;
  /** An age such as 7d; empty: all time. */
  since: string;
}

/** The parameters of a request for these runs. */
export function listParams({ filter, group, all, since, sort, reverse }: ListOptions): Params {
  return { filter, group: group ? "conversation" : null, all, since, sort, reverse, cost: true };
}

/** The parameters of a request for the totals of these runs: none of the rows is of interest. */
export const totalsParams = (options: ListOptions): Params => ({
  ...listParams(options),
  sort: null,
  reverse: null,
  limit: 1,
  totals: true,
});

export function useRuns(options: ListOptions): Runs {
  const [rows, setRows] = useState<RunRow[] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [looking, setLooking] = useState(false);
  const [understood, setUnderstood] = useState("");
  const turn = useRef(0);
  const [changes, setChanges] = useState(0);
  const params: Params = { ...listParams(options), limit: PAGE };
  const key = JSON.stringify(options);
  const [shownKey, setShownKey] = useState(key);
  /** New rows of a sorted list may belong anywhere: it is loaded again. */
  const sorted = options.sort !== "" || options.reverse;

  const load = async (after: string | null, refresh = false): Promise<void> => {
    const mine = refresh ? turn.current : ++turn.current;
    setLooking(true);
    try {
      const data = await get<ListData>("list", { ...params, after });
      if (mine !== turn.current) return;
      setError(null);
      setUnderstood(data.understood ?? "");
      setRows((before) =>
        refresh && sorted ? data.runs : merged(before, data, after !== null, refresh),
      );
      if (refresh) setChanges((times) => times + 1);
      else setShownKey(key);
      if (!refresh) setNext(data.more === false ? null : (data.next ?? null));
      // Some filters look at each run, a stretch at a time: an empty page is not the end.
      if (!refresh && data.more && data.next && data.runs.length < PAGE / 4) void load(data.next);
    } catch (problem) {
      if (mine === turn.current) setError(asApiError(problem));
    } finally {
      if (mine === turn.current) setLooking(false);
    }
  };

  useEffect(() => {
    // While one types, not each letter is a question.
    const timer = setTimeout(() => void load(null), rows === null ? 0 : 200);
    return () => clearTimeout(timer);
  }, [key]);

  useEffect(() => {
    let timer = 0;
    const stop = listen(() => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        void load(null, true);
      }, QUIET_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [key]);

  useReturn(isUnreachable(error), () => void load(null));
  return {
    rows,
    error,
    more: next !== null,
    looking,
    // After a refused filter, too: the rows are not what it asks for.
    stale: shownKey !== key,
    understood,
    changes,
    loadMore: () => {
      if (next !== null && !looking) void load(next);
    },
  };
}

/** Check failed runs that have no stored finding yet, one by one. */
export function useTopFindings(rows: RunRow[]): Map<string, Finding> {
  const [found, setFound] = useState(() => new Map<string, Finding>());
  const requested = useRef(new Set<string>());
  useEffect(() => {
    let gone = false;
    const unchecked = rows
      .slice(0, EXAMINED_ROWS)
      .filter(
        (run) =>
          !run.top_finding &&
          !["ok", "running", "unknown"].includes(run.outcome) &&
          run.span_count <= EXAMINED_SPANS,
      )
      .filter((run) => !requested.current.has(run.id));
    void (async () => {
      for (const run of unchecked) {
        if (gone) return;
        requested.current.add(run.id);
        const data = await get<CheckData>("check", { id: run.short_id }).catch(() => null);
        const first = data?.findings[0];
        if (first && !gone) setFound((before) => new Map(before).set(run.id, first));
      }
    })();
    return () => {
      gone = true;
    };
  }, [rows]);
  return found;
}

function merged(
  before: RunRow[] | null,
  data: ListData,
  further: boolean,
  refresh: boolean,
): RunRow[] {
  const found = data.runs;
  if (!before || (!further && !refresh)) return found;
  if (further) {
    const known = new Set(before.map((run) => run.id));
    return [...before, ...found.filter((run) => !known.has(run.id))];
  }
  // The newest page again: as far as it reaches, what it does not have is not there any more
  // (a run that has ended, among those that are running); what is older stays.
  const fresh = new Set(found.map((run) => run.id));
  const goesOn = data.more || data.next;
  const reaches = goesOn
    ? before.reduce((last, run, place) => (fresh.has(run.id) ? place + 1 : last), 0)
    : before.length;
  return [...found, ...before.slice(reaches).filter((run) => !fresh.has(run.id))];
}
