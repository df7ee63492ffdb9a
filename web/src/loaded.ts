/** The run that is looked at, kept up to date while it lives. */

import { useEffect, useRef, useState } from "preact/hooks";
import { exported, get, listen, type ApiError } from "./api";
import { asApiError } from "./answers";
import { RunModel } from "./model";
import type { OutlineData } from "./types";

export interface Loaded {
  run: RunModel | null;
  error: ApiError | null;
  /** Stop or go on following a run that is still being written. */
  paused: boolean;
  pause: (on: boolean) => void;
  again: () => void;
}

const QUIET_MS = 400;

export function useRun(id: string): Loaded {
  const [run, setRun] = useState<RunModel | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [paused, pause] = useState(false);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let gone = false;
    get<OutlineData>("outline", { id }).then(
      (data) => {
        if (gone) return;
        setRun(new RunModel(data));
        setError(null);
      },
      (problem: unknown) => !gone && setError(asApiError(problem)),
    );
    return () => {
      gone = true;
    };
  }, [id, turn]);
  const live = run?.run.outcome === "running" && !exported && !paused;
  const timer = useRef(0);
  useEffect(() => {
    if (!live) return;
    const stop = listen((event) => {
      // Many records may come at once: one look for all of them.
      const about = event.data.run_id ?? event.data.run;
      if (about !== undefined && about !== run.run.id && about !== run.run.short_id) return;
      if (!timer.current) {
        timer.current = window.setTimeout(() => {
          timer.current = 0;
          setTurn((value) => value + 1);
        }, QUIET_MS);
      }
    });
    return () => {
      stop();
      clearTimeout(timer.current);
      timer.current = 0;
    };
  }, [live, run?.run.id]);
  return { run, error, paused, pause, again: () => setTurn((value) => value + 1) };
}
