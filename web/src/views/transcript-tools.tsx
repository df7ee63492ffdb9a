/** How a transcript is read: what is folded to one line, and whether only answers are shown. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { answersOnly, folded, setAnswersOnly, setFolded } from "../router";
import type { Item } from "../types";
import { canFold } from "./transcript-lines";

/** A run of more spans opens folded. */
const LONG_SPANS = 24;

/** The span at the top of the transcript, whose step the list of steps marks. */
export const readingSpan = signal<string | null>(null);

export interface Reading {
  isFolded: boolean;
  onlyAnswers: boolean;
  isOpen: (item: Item) => boolean;
  toggle: (item: Item) => void;
  foldAll: (on: boolean) => void;
}

export function useReading(run: RunModel): Reading {
  // A live run does not fold while it is read.
  const [isLong] = useState(run.run.span_count > LONG_SPANS);
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set());
  const onlyAnswers = answersOnly.value;
  const isFolded = folded.value ?? (isLong || onlyAnswers);
  return {
    isFolded,
    onlyAnswers,
    isOpen: (item) => !canFold(item) || isFolded === toggled.has(item.cursor),
    toggle: (item) => {
      const next = new Set(toggled);
      if (!next.delete(item.cursor)) next.add(item.cursor);
      setToggled(next);
    },
    foldAll: (on) => {
      setToggled(new Set());
      setFolded(on);
    },
  };
}

/** Where the reader is, so that folding does not lose it. */
export function usePlace(items: Item[]) {
  const [place, setPlace] = useState({ cursor: "", turn: 0 });
  return {
    /** Remember the first visible item. */
    keep: (shown: Item[]): void => {
      const list = document.querySelector(".transcript");
      const top = list?.getBoundingClientRect().top ?? 0;
      const rows = [...(list?.querySelectorAll<HTMLElement>(".item") ?? [])];
      const first = rows.find((row) => row.getBoundingClientRect().bottom > top + EDGE);
      const cursor = shown[Number(first?.dataset.index)]?.cursor ?? "";
      setPlace({ cursor, turn: place.turn + 1 });
    },
    /** The row of the remembered item, or of the next one that is shown. */
    rowOf: (shown: Item[]) => {
      const from = items.findIndex((item) => item.cursor === place.cursor);
      const isShown = new Map(shown.map((item, row) => [item.cursor, row]));
      const next = items.slice(Math.max(0, from)).find((item) => isShown.has(item.cursor));
      return { row: isShown.get(next?.cursor ?? "") ?? 0, turn: place.turn };
    },
  };
}

/** Pixels of an item above the edge that are not worth to be called its beginning. */
const EDGE = 12;

interface ToolsProps {
  reading: Reading;
  /** Called before the rows change. */
  onChange: () => void;
}

export function ReadingTools({ reading, onChange }: ToolsProps) {
  const { isFolded, onlyAnswers } = reading;
  const foldAll = (on: boolean): void => {
    onChange();
    reading.foldAll(on);
  };
  const showAnswers = (): void => {
    onChange();
    setAnswersOnly(!onlyAnswers);
  };
  useKeys([
    { key: "z", label: "Fold or unfold the transcript", run: () => foldAll(!isFolded) },
    { key: "a", label: "Show answers only", run: showAnswers },
  ]);
  return (
    <div class="rowline wrap viewtools" role="group" aria-label="Transcript view">
      <button type="button" class="plain" onClick={() => foldAll(true)}>
        Fold all
      </button>
      <button type="button" class="plain" onClick={() => foldAll(false)}>
        Unfold all
      </button>
      <button type="button" class="plain" aria-pressed={onlyAnswers} onClick={showAnswers}>
        Answers only
      </button>
    </div>
  );
}
