/**
 * The transcript's items, page after page: as many as somebody looks at. All of them only where they
 * are searched, or while the run lives. A long run has too many to read them for nothing.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { asApiError } from "../answers";
import { exported, get, type ApiError } from "../api";
import type { RunModel } from "../model";
import type { Item, TranscriptData } from "../types";

/** So many come at once: those at the end of what is known may come again. */
const PAGE = 200;
/** After the first page, which should be there soon. An export has pages of one size. */
const MOST = 1_000;

export interface Items {
  /** The same array while it grows: `read` says that it has. */
  items: Item[];
  read: number;
  error: ApiError | null;
  whole: boolean;
  /** The reader has come to the end of them. */
  more: () => void;
}

interface Known {
  items: Item[];
  spans: Set<string>;
  last: string | null;
  wanted: number;
  busy: boolean;
}

/** `all`: every one of them; `upTo`: at least those of this span. */
export function useItems(run: RunModel, all: boolean, upTo: number | undefined): Items {
  const [state, setState] = useState<{ read: number; error: ApiError | null; whole: boolean }>({ read: 0, error: null, whole: false });
  const [turn, setTurn] = useState(0);
  const known = useRef<Known>({ items: [], spans: new Set(), last: null, wanted: PAGE, busy: false });
  const span = upTo === undefined ? null : run.shortId(upTo);
  useEffect(() => {
    let gone = false;
    const mine = known.current;
    // A span may have no item of its own: what began after it will do.
    const passed = (): boolean => span === null || mine.spans.has(span) || (mine.items.at(-1)?.at_us ?? 0) > run.start(upTo!);
    const enough = (): boolean => !all && mine.items.length >= mine.wanted && passed();
    const read = async (): Promise<void> => {
      if (mine.busy || (mine.items.length && enough())) return;
      mine.busy = true;
      try {
        for (;;) {
          const data = await get<TranscriptData>("transcript", { id: run.run.short_id, after: mine.last, limit: exported || mine.last === null ? null : MOST });
          if (gone) return;
          take(mine, data);
          setState({ read: mine.items.length, error: null, whole: data.next === null });
          if (data.next === null || data.next === mine.last) return;
          mine.last = data.next;
          if (enough()) return;
        }
      } catch (problem) {
        if (!gone) setState({ read: mine.items.length, error: asApiError(problem), whole: true });
      } finally {
        if (!gone) mine.busy = false;
      }
    };
    void read();
    return () => {
      gone = true;
      mine.busy = false;
    };
  }, [run.run.short_id, run.next, all, span, turn]);
  const more = (): void => {
    const mine = known.current;
    if (mine.busy || mine.wanted > mine.items.length) return;
    mine.wanted = mine.items.length + PAGE;
    setTurn((value) => value + 1);
  };
  return { ...state, items: known.current.items, more };
}

function take(mine: Known, data: TranscriptData): void {
  const seen = new Set(mine.items.slice(-2 * MOST).map((item) => item.cursor));
  for (const item of data.items) {
    if (seen.has(item.cursor)) continue;
    mine.items.push(item);
    if (item.span) mine.spans.add(item.span);
  }
}
