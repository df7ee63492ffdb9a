/** Search inside a run: payloads, attributes and logs; hits are numbered, marked and highlighted. */

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { exported, get, searchExport } from "../api";
import { useKeys } from "../keys";
import { adjust, route, searched, tabOfPart } from "../router";
import type { GrepData } from "../types";
import { splitWords } from "./find-words";
import { count } from "./format";
import { useHighlight } from "./highlight-words";

interface Hit {
  short_id: string;
  part: string;
}

/** The hits of a search, with its run and words: what is typed may be newer. */
interface Found {
  run: string;
  words: string;
  hits: Hit[];
}

const NO_HITS: Hit[] = [];
const TYPING_MS = 250;
const HITS_MAX = 2_000;

/** The numbers of the spans with hits, for marks on rows and on the timeline. */
export const hitSpans = signal<ReadonlySet<number>>(new Set());

export function RunSearch({ run }: { run: string }) {
  const words = searched.value;
  const [found, setFound] = useState<Found>({ run, words: "", hits: [] });
  const [at, setAt] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const waiting = useRef<1 | -1 | null>(null);
  const busy = words.trim() !== "" && (found.run !== run || found.words !== words);
  const hits = busy ? NO_HITS : found.hits;
  const open = (all: Hit[], place: number): void => {
    const hit = all[place];
    if (!hit) return;
    setAt(place);
    adjust({ span: `s${numberOf(hit)}`, tab: tabOfPart(hit.part) });
  };
  const step = (by: 1 | -1): void => {
    if (busy) waiting.current = by;
    else if (hits.length) open(hits, (at + by + hits.length) % hits.length);
  };
  useEffect(() => {
    setAt(-1);
    hitSpans.value = new Set();
    if (!words.trim()) return;
    let replaced = false;
    const timer = setTimeout(() => {
      void findAll(run, words).then((all) => {
        if (replaced) return;
        setFound({ run, words, hits: all });
        hitSpans.value = new Set(all.map((hit) => numberOf(hit)));
        const span = route.peek().params.get("span");
        if (waiting.current) open(all, waiting.current === 1 ? 0 : all.length - 1);
        else setAt(all.findIndex((hit) => hit.short_id === `${run}.${span}`));
        waiting.current = null;
      });
    }, TYPING_MS);
    return () => {
      replaced = true;
      clearTimeout(timer);
    };
  }, [run, words]);
  useHighlight(words, at);
  useKeys([
    { key: "f", label: "Search in this run", run: () => input.current?.focus() },
    { key: "n", label: "Next match", run: () => step(1) },
    { key: "N", label: "Previous match", run: () => step(-1) },
  ]);
  useFindKey(input);
  return (
    <span class="run-search rowline" role="search">
      <input
        ref={input}
        type="search"
        placeholder="Search this run  f"
        aria-label="Search this run"
        spellcheck={false}
        value={words}
        onInput={(event) => {
          waiting.current = null;
          adjust({ find: event.currentTarget.value || null });
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
        }}
      />
      {words && (
        <>
          <span class="quiet nowrap" role="status">
            {busy
              ? "…"
              : hits.length
                ? `${at >= 0 ? `${count(at + 1)} of ` : ""}${count(hits.length)}`
                : "No matches"}
          </span>
          <button
            type="button"
            disabled={!hits.length}
            aria-label="Previous match"
            onClick={() => step(-1)}
          >
            ↑
          </button>
          <button
            type="button"
            disabled={!hits.length}
            aria-label="Next match"
            onClick={() => step(1)}
          >
            ↓
          </button>
        </>
      )}
    </span>
  );
}

const numberOf = (hit: Hit): number => Number(hit.short_id.split(".s")[1] ?? 0);

/** The words as one phrase if the run has it, else near each other. */
async function findAll(run: string, words: string): Promise<Hit[]> {
  if (exported) return searchExport(words);
  const needles = splitWords(words);
  const several = needles.length > 1;
  const exact = await readHits(run, several ? words : (needles[0] ?? words), false);
  return exact.length || !several ? exact : readHits(run, words, true);
}

async function readHits(run: string, pattern: string, words: boolean): Promise<Hit[]> {
  const found: Hit[] = [];
  let after: string | null = null;
  try {
    do {
      const page: GrepData = await get<GrepData>("grep", {
        pattern,
        words,
        id: run,
        ignore_case: true,
        after,
      });
      found.push(...page.hits);
      after = page.next;
    } while (after && found.length < HITS_MAX);
  } catch {
    return found;
  }
  return found.sort((one, other) => numberOf(one) - numberOf(other));
}

/** Ctrl F focuses the search, because a browser finds only rendered rows; pressed again, it is the browser's. */
function useFindKey(input: { current: HTMLInputElement | null }): void {
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "f") return;
      if (!input.current || document.activeElement === input.current) return;
      event.preventDefault();
      input.current.focus();
      input.current.select();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
}
