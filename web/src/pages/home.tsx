/** Home: every run, newest first; how it went lately; where words stand; what tools cost. */

import "./home.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { exported } from "../api";
import { useKeys } from "../keys";
import { useCommands } from "../palette";
import { Failed } from "../parts/state";
import { TabPanel, Tabs } from "../parts/tabs";
import { adjust, go, href, keep, recall, route } from "../state";
import { Hits } from "./hits";
import { RunTable } from "./runtable";
import { useRuns } from "./runs";
import { Tools } from "./tools";
import { Trends, type Span } from "./trends";

type Shown = "runs" | "text" | "tools";
const TERMS = ["is:failed", "is:running", "has:finding", "since:1d", "cost>0.1"];

/** A filter's words that are no terms: what a full-text search looks for. */
export function freeWords(filter: string): string {
  const found = filter.match(/-?[a-z]+(?::|[<>]=?|=)(?:"[^"]*"|\S+)|"[^"]*"|\S+/g) ?? [];
  return found
    .filter((term) => !/^-?[a-z]+(?::|[<>]=?|=)/.test(term) && !term.startsWith("-"))
    .map((term) => term.replaceAll('"', ""))
    .join(" ");
}

export function Home() {
  const { params } = route.value;
  const filter = params.get("q") ?? "";
  const group = params.get("group") === "conversation";
  const all = params.get("all") === "1";
  const shown = (params.get("tab") as Shown | null) ?? "runs";
  const runs = useRuns({ filter, group, all });
  const [span, setSpan] = useState<Span>(() => recall("trends", "Month") as Span);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => void (document.title = "Runs · Vestige"), []);
  const set = (text: string): void => adjust({ q: text || null });
  const toggle = (term: string): void => {
    const has = filter.split(/\s+/).includes(term);
    set(has ? filter.split(/\s+/).filter((one) => one !== term).join(" ") : `${filter} ${term}`.trim());
  };
  useKeys([
    { key: "/", say: "filter and search", run: () => input.current?.focus() },
    { key: "F", say: "only runs that failed", run: () => toggle("is:failed") },
  ]);
  useCommands((words) =>
    (runs.rows ?? [])
      .filter((run) => `${run.short_id} ${run.name}`.toLowerCase().includes(words.trim()))
      .slice(0, 12)
      .map((run) => ({ title: run.name, note: `${run.short_id} ${run.outcome}`, run: () => go(href("run", run.short_id)) })),
  );
  if (exported) return null;
  return (
    <div class="home column grow">
      <h1 class="sr">Runs</h1>
      <Trends span={span} onSpan={(to) => { keep("trends", to); setSpan(to); }} />
      <div class="home-bar">
        <input
          ref={input}
          type="search"
          class="grow"
          aria-label="Filter and search runs"
          aria-describedby="filter-terms"
          placeholder='is:failed tool:search model:x cost>0.1 since:2d "some words"'
          spellcheck={false}
          value={filter}
          onInput={(event) => set(event.currentTarget.value)}
        />
        <span id="filter-terms" class="rowline wrap" role="group" aria-label="Terms of the filter">
          {TERMS.map((term) => (
            <button key={term} type="button" class="mono" aria-pressed={filter.split(/\s+/).includes(term)} onClick={() => toggle(term)}>{term}</button>
          ))}
        </span>
        <span class="rowline wrap">
          <button type="button" aria-pressed={group} onClick={() => adjust({ group: group ? null : "conversation" })}>By conversation</button>
          <button type="button" aria-pressed={all} title="Also the runs of mere processes" onClick={() => adjust({ all: all ? null : 1 })}>All</button>
        </span>
      </div>
      {runs.error && <div class="page-pad"><Failed error={runs.error} /></div>}
      <Tabs<Shown>
        label="What to show"
        panel="home-panel"
        current={shown}
        onPick={(to) => adjust({ tab: to === "runs" ? null : to })}
        tabs={[{ id: "runs", label: "Runs" }, { id: "text", label: "Text" }, { id: "tools", label: "Tools" }]}
      />
      <TabPanel panel="home-panel" current={shown}>
        {shown === "runs" && <RunTable runs={runs} filtered={filter !== ""} grouped={group} />}
        {shown === "text" && <Hits words={freeWords(filter)} />}
        {shown === "tools" && <Tools />}
      </TabPanel>
    </div>
  );
}
