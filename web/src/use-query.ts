/** Answers as components use them: sent once, shared while fresh, with their errors. */

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, keyOf, type Params, type Verb } from "./api";
import { useReturn } from "./connection";

export interface Asked<T> {
  data: T | null;
  error: ApiError | null;
  loading: boolean;
  again: () => void;
}

const CACHED_MAX = 200;
/** How long an answer stays fresh. */
const FRESH_MS = 30_000;
const cache = new Map<string, { at: number; answer: Promise<unknown> }>();

/** The same promise for the same question about the same `version`; `fresh` asks again. */
export function ask<T>(verb: Verb, params: Params = {}, fresh = false, version = ""): Promise<T> {
  const key = `${keyOf(verb, params)} ${version}`;
  const known = cache.get(key);
  if (known && !fresh && Math.abs(Date.now() - known.at) < FRESH_MS)
    return known.answer as Promise<T>;
  const answer = get<T>(verb, params);
  cache.delete(key);
  cache.set(key, { at: Date.now(), answer });
  answer.catch(() => cache.delete(key));
  if (cache.size > CACHED_MAX) cache.delete(cache.keys().next().value as string);
  return answer;
}

/**
 * `params` null: nothing to ask yet. Old data stays while a new answer is on its way. A run that is
 * still being written gives other answers later: a new `version` asks again.
 */
export function useAnswer<T>(verb: Verb, params: Params | null, version = ""): Asked<T> {
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState<{ key: string; data: T | null; error: ApiError | null }>({
    key: "",
    data: null,
    error: null,
  });
  const key = params ? keyOf(verb, params) : "";
  const last = useRef(0);
  /** The question that is open, by its number, and the last one whose answer is shown. */
  const now = useRef({ key, sent: 0, shown: 0 });
  now.current.key = key;
  useEffect(() => {
    if (!params) return;
    const mine = ++now.current.sent;
    const fresh = turn !== last.current;
    last.current = turn;
    ask<T>(verb, params, fresh, version).then(
      (data) => {
        // Of an older version, it is still better than none: a busy run has a newer one all the time.
        if (now.current.key !== key || mine < now.current.shown) return;
        now.current.shown = mine;
        setState({ key, data, error: null });
      },
      (error: unknown) =>
        mine === now.current.sent &&
        now.current.key === key &&
        setState({ key, data: null, error: asApiError(error) }),
    );
  }, [key, turn, version]);
  useEffect(() => () => void (now.current.key = "unmounted"), []);
  const current = state.key === key;
  useReturn(current && isUnreachable(state.error), () => setTurn((value) => value + 1));
  return {
    data: params ? state.data : null,
    error: current ? state.error : null,
    loading: params !== null && !current,
    again: () => setTurn((value) => value + 1),
  };
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // What a browser cannot decode is not a lost connection.
  if (error instanceof DOMException && error.name !== "AbortError")
    return new ApiError(0, "unreadable", `The answer cannot be read (${error.name})`);
  return new ApiError(0, "unreachable", "Lost connection to Vestige. Is it still running?");
}

/** True if the server did not answer at all. */
export const isUnreachable = (error: ApiError | null): boolean => error?.code === "unreachable";
