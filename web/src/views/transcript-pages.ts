/**
 * The items of a transcript, read page by page as the reader scrolls. All pages are read only for a
 * search, or while the run is live, because a long run has too many.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, exported, get } from "../api";
import type { RunModel } from "../model";
import type { Item, TranscriptData } from "../types";
import { asApiError } from "../use-query";

/** Items per page. */
const PAGE = 200;
/** After the first page, which should be there soon. An export has pages of one size. */
const MOST = 1_000;

export interface Items {
  /** The same array while it grows; `read` changes with its contents. */
  items: Item[];
  read: number;
  error: ApiError | null;
  complete: boolean;
  /** The reader has come to the end of them. */
  more: () => void;
  again: () => void;
}

/** Pages so far. The last one is read again when something is new: what was open in it may have ended. */
interface Pages {
  items: Item[];
  spans: Set<string>;
  /** After what the last page comes, and where in `items` it begins. */
  last: string | null;
  begin: number;
  complete: boolean;
}

interface Target {
  run: RunModel;
  /** Every one of them. */
  all: boolean;
  /** At least those of this span. */
  upTo: number | undefined;
}

type State = Pick<Items, "read" | "error" | "complete">;

export function useItems(run: RunModel, all: boolean, upTo: number | undefined): Items {
  const [state, setState] = useState<State>({ read: 0, error: null, complete: false });
  const instance = useRef<Reading | null>(null);
  const reading = (instance.current ??= new Reading(setState));
  reading.target = { run, all, upTo };
  const again = (): void => void reading.read();
  useEffect(again, [run.next, all, upTo === undefined ? 0 : run.number(upTo)]);
  useEffect(() => () => void (reading.gone = true), []);
  return { ...state, items: reading.items, more: () => reading.readOn(), again };
}

const noPages = (): Pages => ({
  items: [],
  spans: new Set(),
  last: null,
  begin: 0,
  complete: false,
});

/** Reads one page at a time; requests made meanwhile are served after it. */
class Reading {
  target!: Target;
  gone = false;
  private pages = noPages();
  private count = PAGE;
  private turn = 0;
  private outcome = "";
  private busy = false;
  private pending = false;

  constructor(private readonly publish: (state: State) => void) {}

  get items(): Item[] {
    return this.pages.items;
  }

  readOn(): void {
    if (this.busy || this.count > this.items.length) return;
    this.count = this.items.length + PAGE;
    void this.read();
  }

  async read(): Promise<void> {
    this.pending = true;
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.pending && !this.gone) {
        this.pending = false;
        await this.readTarget();
      }
    } catch (problem) {
      if (!this.gone)
        this.publish({
          read: this.turn,
          error: asApiError(problem),
          complete: this.pages.complete,
        });
    } finally {
      this.busy = false;
    }
  }

  private async readTarget(): Promise<void> {
    const { outcome } = this.target.run.run;
    // The run ended: an item on any page may have changed.
    if (this.outcome && this.outcome !== outcome) await this.readAgain();
    this.outcome = outcome;
    while (!this.gone && !(this.items.length && this.isEnough())) {
      const more = await this.readPage(this.pages);
      if (!more) return;
    }
  }

  private async readAgain(): Promise<void> {
    const fresh = noPages();
    while (!this.gone && (await this.readPage(fresh)) && fresh.items.length < this.items.length);
    if (this.gone) return;
    this.pages = fresh;
    this.publish({ read: ++this.turn, error: null, complete: fresh.complete });
  }

  private isEnough(): boolean {
    const { run, all, upTo } = this.target;
    if (all || this.items.length < this.count) return false;
    // A span may have no item of its own: what began after it will do.
    return (
      upTo === undefined ||
      this.pages.spans.has(run.shortId(upTo)) ||
      (this.items.at(-1)?.at_us ?? 0) > run.start(upTo)
    );
  }

  /** True: there is another one after it. */
  private async readPage(pages: Pages): Promise<boolean> {
    const limit = exported || pages.last === null ? null : MOST;
    const data = await get<TranscriptData>("transcript", {
      id: this.target.run.run.short_id,
      after: pages.last,
      limit,
    });
    if (this.gone) return false;
    if (take(pages, data)) this.turn++;
    if (pages === this.pages)
      this.publish({ read: this.turn, error: null, complete: pages.complete });
    return !pages.complete;
  }
}

/** False: all of it was known. */
function take(pages: Pages, data: TranscriptData): boolean {
  const before = pages.items.slice(pages.begin);
  const isNew =
    before.length !== data.items.length || JSON.stringify(before) !== JSON.stringify(data.items);
  if (isNew) pages.items.splice(pages.begin, before.length, ...data.items);
  for (const { span } of data.items) if (span) pages.spans.add(span);
  pages.complete = data.next === null || data.next === pages.last;
  if (!pages.complete) {
    pages.last = data.next;
    pages.begin = pages.items.length;
  }
  return isNew;
}
