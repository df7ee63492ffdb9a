/** The run that is looked at, kept up to date while it lives. */

import { useEffect, useRef, useState } from "preact/hooks";
import { exported, get, listen, type ApiError } from "./api";
import { asApiError } from "./answers";
import { RunModel } from "./model";
import type { OutlineData } from "./types";

export interface Loaded {
  run: RunModel | null;
  error: ApiError | null;
  /** Not following a run that is still being written. */
  paused: boolean;
  pause: (on: boolean) => void;
  again: () => void;
}

/** Many records may come at once: one look for all of them. */
const QUIET_MS = 300;

export function useRun(id: string): Loaded {
  const [run, setRun] = useState<RunModel | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [paused, pause] = useState(false);
  const [turn, setTurn] = useState(0);
  const known = useRef<RunModel | null>(null);
  const again = (): void => setTurn((value) => value + 1);
  useEffect(() => {
    let gone = false;
    const before = known.current;
    get<OutlineData>("outline", { id, after: before?.next }).then(
      (data) => {
        if (gone) return;
        known.current = before ? before.and(data) : new RunModel(data);
        setRun(known.current);
        setError(null);
        if (data.more) again();
      },
      (problem: unknown) => !gone && setError(asApiError(problem)),
    );
    return () => {
      gone = true;
    };
  }, [id, turn]);
  const live = run?.run.outcome === "running" && !exported && !paused;
  useEffect(() => {
    if (!live) return;
    let timer = 0;
    const look = (): void => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        again();
      }, QUIET_MS);
    };
    look(); // what came between the first answer and now
    const stop = listen(look, run.run.short_id);
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [live, run?.run.id]);
  return { run, error, paused, pause, again };
}
