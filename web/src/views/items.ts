/**
 * The transcript's items, page after page: as many as somebody looks at. All of them only where they
 * are searched, or while the run lives. A long run has too many to read them for nothing.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { asApiError } from "../answers";
import { exported, get, type ApiError } from "../api";
import type { RunModel } from "../model";
import type { Item, TranscriptData } from "../types";

/** So many come at once. */
const PAGE = 200;
/** After the first page, which should be there soon. An export has pages of one size. */
const MOST = 1_000;

export interface Items {
  /** The same array while it grows: `read` says that it is another one by what it holds. */
  items: Item[];
  read: number;
  error: ApiError | null;
  whole: boolean;
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
  whole: boolean;
}

interface Wanted {
  run: RunModel;
  /** Every one of them. */
  all: boolean;
  /** At least those of this span. */
  upTo: number | undefined;
}

type State = Pick<Items, "read" | "error" | "whole">;

export function useItems(run: RunModel, all: boolean, upTo: number | undefined): Items {
  const [state, setState] = useState<State>({ read: 0, error: null, whole: false });
  const kept = useRef<Reading | null>(null);
  const reading = (kept.current ??= new Reading(setState));
  reading.wanted = { run, all, upTo };
  const again = (): void => void reading.read();
  useEffect(again, [run.next, all, upTo === undefined ? 0 : run.number(upTo)]);
  useEffect(() => () => void (reading.gone = true), []);
  return { ...state, items: reading.items, more: () => reading.readOn(), again };
}

const noPages = (): Pages => ({ items: [], spans: new Set(), last: null, begin: 0, whole: false });

/** One question at a time; what is asked for meanwhile is read after it. */
class Reading {
  wanted!: Wanted;
  gone = false;
  private pages = noPages();
  private count = PAGE;
  private turn = 0;
  private outcome = "";
  private busy = false;
  private asked = false;

  constructor(private readonly tell: (state: State) => void) {}

  get items(): Item[] {
    return this.pages.items;
  }

  readOn(): void {
    if (this.busy || this.count > this.items.length) return;
    this.count = this.items.length + PAGE;
    void this.read();
  }

  async read(): Promise<void> {
    this.asked = true;
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.asked && !this.gone) {
        this.asked = false;
        await this.readWanted();
      }
    } catch (problem) {
      if (!this.gone) this.tell({ read: this.turn, error: asApiError(problem), whole: this.pages.whole });
    } finally {
      this.busy = false;
    }
  }

  private async readWanted(): Promise<void> {
    const { outcome } = this.wanted.run.run;
    // It ended: what was open, or came in between, may stand on any page.
    if (this.outcome && this.outcome !== outcome) await this.readAnew();
    this.outcome = outcome;
    while (!this.gone && !(this.items.length && this.isEnough())) {
      const more = await this.readPage(this.pages);
      if (!more) return;
    }
  }

  private async readAnew(): Promise<void> {
    const fresh = noPages();
    while (!this.gone && (await this.readPage(fresh)) && fresh.items.length < this.items.length);
    if (this.gone) return;
    this.pages = fresh;
    this.tell({ read: ++this.turn, error: null, whole: fresh.whole });
  }

  private isEnough(): boolean {
    const { run, all, upTo } = this.wanted;
    if (all || this.items.length < this.count) return false;
    // A span may have no item of its own: what began after it will do.
    return upTo === undefined || this.pages.spans.has(run.shortId(upTo)) || (this.items.at(-1)?.at_us ?? 0) > run.start(upTo);
  }

  /** True: there is another one after it. */
  private async readPage(pages: Pages): Promise<boolean> {
    const limit = exported || pages.last === null ? null : MOST;
    const data = await get<TranscriptData>("transcript", { id: this.wanted.run.run.short_id, after: pages.last, limit });
    if (this.gone) return false;
    if (take(pages, data)) this.turn++;
    if (pages === this.pages) this.tell({ read: this.turn, error: null, whole: pages.whole });
    return !pages.whole;
  }
}

/** False: all of it was known. */
function take(pages: Pages, data: TranscriptData): boolean {
  const before = pages.items.slice(pages.begin);
  const isNew = before.length !== data.items.length || JSON.stringify(before) !== JSON.stringify(data.items);
  if (isNew) pages.items.splice(pages.begin, before.length, ...data.items);
  for (const { span } of data.items) if (span) pages.spans.add(span);
  pages.whole = data.next === null || data.next === pages.last;
  if (!pages.whole) {
    pages.last = data.next;
    pages.begin = pages.items.length;
  }
  return isNew;
}
