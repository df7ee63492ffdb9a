/** The list of runs as it grows: pages as one scrolls, live rows as they happen. */

import { useEffect, useRef, useState } from "preact/hooks";
import { asApiError } from "../answers";
import { get, listen, type ApiError, type Params } from "../api";
import type { CheckData, ListData, RunRow } from "../types";

const PAGE = 200;
/** Live events come in bursts: the list is asked for once for all of them. */
const QUIET_MS = 700;
/** So many rows are examined for their top finding; long runs are not, they take seconds. */
const EXAMINED_ROWS = 60;
const EXAMINED_SPANS = 5_000;

export interface Runs {
  rows: RunRow[] | null;
  error: ApiError | null;
  more: boolean;
  looking: boolean;
  loadMore: () => void;
}

export interface Wanted {
  filter: string;
  group: boolean;
  all: boolean;
}

export function useRuns({ filter, group, all }: Wanted): Runs {
  const [rows, setRows] = useState<RunRow[] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [looking, setLooking] = useState(false);
  const turn = useRef(0);
  const params: Params = { filter, group: group ? "conversation" : null, all, cost: true, limit: PAGE };
  const key = `${filter}|${group}|${all}`;

  const load = async (after: string | null, refresh = false): Promise<void> => {
    const mine = refresh ? turn.current : ++turn.current;
    setLooking(true);
    try {
      const data = await get<ListData>("list", { ...params, after });
      if (mine !== turn.current) return;
      setError(null);
      setRows((before) => merged(before, data, after !== null, refresh));
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

  return {
    rows,
    error,
    more: next !== null,
    looking,
    loadMore: () => {
      if (next !== null && !looking) void load(next);
    },
  };
}

/** Runs that failed and that nobody has examined yet: what their checks find, one by one. */
export function useTopFindings(rows: RunRow[]): Map<string, string> {
  const [found, setFound] = useState(() => new Map<string, string>());
  const asked = useRef(new Set<string>());
  useEffect(() => {
    let gone = false;
    const wanted = rows
      .slice(0, EXAMINED_ROWS)
      .filter((run) => !run.top_finding && run.outcome !== "ok" && run.outcome !== "running" && run.span_count <= EXAMINED_SPANS)
      .filter((run) => !asked.current.has(run.id));
    void (async () => {
      for (const run of wanted) {
        if (gone) return;
        asked.current.add(run.id);
        const data = await get<CheckData>("check", { id: run.short_id }).catch(() => null);
        const first = data?.findings[0];
        if (first && !gone) setFound((before) => new Map(before).set(run.id, first.kind));
      }
    })();
    return () => {
      gone = true;
    };
  }, [rows]);
  return found;
}

function merged(before: RunRow[] | null, data: ListData, further: boolean, refresh: boolean): RunRow[] {
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
  const reaches = goesOn ? before.reduce((last, run, place) => (fresh.has(run.id) ? place + 1 : last), 0) : before.length;
  return [...found, ...before.slice(reaches).filter((run) => !fresh.has(run.id))];
}
