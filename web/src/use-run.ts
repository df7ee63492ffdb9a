/** Load a run, and update it while it is live. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, exported, get, listen } from "./api";
import { useReturn } from "./connection";
import { RunModel } from "./model";
import type { OutlineData } from "./types";
import { asApiError, isUnreachable } from "./use-query";

export interface Loaded {
  run: RunModel | null;
  error: ApiError | null;
  /** Not following a run that is still being written. */
  paused: boolean;
  pause: (on: boolean) => void;
  again: () => void;
}

/** Live events come in bursts; one read serves all of them. */
const QUIET_MS = 300;
/** Spans of the first answer: a long run shows its first rows before the rest has come. */
const FIRST_SPANS = 5_000;

export function useRun(id: string): Loaded {
  const [run, setRun] = useState<RunModel | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [paused, pause] = useState(false);
  const look = useRef<() => Promise<void>>(() => Promise.resolve());
  const again = (): void => void look.current();
  useEffect(() => {
    const reader = new Reader(id, setRun, setError);
    look.current = () => reader.read();
    again();
    return () => {
      reader.gone = true;
    };
  }, [id]);
  const live = run?.run.outcome === "running" && !exported && !paused;
  useEffect(() => {
    if (!live) return;
    let timer = 0;
    const soon = (): void => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        again();
      }, QUIET_MS);
    };
    soon(); // what came between the first answer and now
    const stop = listen(soon, run.run.short_id);
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [live, run?.run.id]);
  useReturn(isUnreachable(error), again);
  return { run, error, paused, pause, again };
}

/**
 * Reads a run, and what is new in it. One question at a time, and each is heard to its end: were a
 * slow answer thrown away because there is something newer, a busy run would never be seen to move.
 */
class Reader {
  gone = false;
  private known: RunModel | null = null;
  private busy = false;
  private pending = false;

  constructor(
    private readonly id: string,
    private readonly publish: (run: RunModel) => void,
    private readonly fail: (error: ApiError | null) => void,
  ) {}

  async read(): Promise<void> {
    this.pending = true;
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.pending && !this.gone) await this.page();
    } catch (problem) {
      if (!this.gone) this.fail(asApiError(problem));
    } finally {
      this.busy = false;
    }
  }

  private async page(): Promise<void> {
    this.pending = false;
    const before = this.known;
    const limit = before || exported ? null : FIRST_SPANS;
    const data = await get<OutlineData>("outline", { id: this.id, after: before?.next, limit });
    if (this.gone) return;
    this.known = before ? before.and(data) : new RunModel(data);
    this.pending ||= data.more;
    this.publish(this.known);
    this.fail(null);
  }
}
