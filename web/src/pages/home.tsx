/** Home: the list of runs with its totals, full-text matches, trends and costs. */

import "./home.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { exported } from "../api";
import { useKeys } from "../keys";
import { oneLine } from "../parts/format";
import { Menu } from "../parts/menu";
import { Failed } from "../parts/placeholders";
import { TabPanel, Tabs } from "../parts/tabs";
import { adjust, keep, recall, route } from "../router";
import { Costs } from "./costs";
import { FilterTerms } from "./filter-terms";
import { asPhrase, freeWords, splitTyped } from "./filter-text";
import { ColumnMenu, RunTable, SortPicker, useColumns } from "./run-table";
import { Hits } from "./search-results";
import { Tools } from "./tools";
import { Totals } from "./totals";
import { Trends } from "./trends";
import { useRuns } from "./use-runs";

type Shown = "runs" | "text" | "trends" | "costs" | "tools";
const TABS: { id: Shown; label: string }[] = [
  { id: "runs", label: "Runs" },
  { id: "text", label: "Matches" },
  { id: "trends", label: "Trends" },
  { id: "costs", label: "Costs" },
  { id: "tools", label: "Tools" },
];
const TERMS: [string, string][] = [
  ["is:failed", "Failed"],
  ["is:running", "Running"],
  ["has:finding", "With findings"],
  ["has:note", "With notes"],
  ["cost>0.1", "Over $0.10"],
];
const RANGES: [string, string][] = [
  ["", "All time"],
  ["1d", "24 h"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];
const SAVED_MAX = 30;

export function Home() {
  const { params } = route.value;
  const typed = params.get("q") ?? "";
  const { filter, open } = splitTyped(typed);
  const options = {
    filter,
    group: params.get("group") === "conversation",
    all: params.get("all") === "1",
    since: params.get("since") ?? "",
    sort: params.get("sort") ?? "",
    reverse: params.get("reverse") === "1",
  };
  const { group, all, since } = options;
  const shown = TABS.find((tab) => tab.id === params.get("tab"))?.id ?? "runs";
  const runs = useRuns(options);
  const [columns, toggleColumn] = useColumns();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => void (document.title = "Runs · Vestige"), []);
  const set = (text: string): void => adjust({ q: text || null });
  const toggle = (term: string): void => {
    const terms = typed.split(/\s+/).filter(Boolean);
    set(
      terms.includes(term)
        ? terms.filter((one) => one !== term).join(" ")
        : [...terms, term].join(" "),
    );
  };
  useKeys([
    { key: "/", label: "Filter and search", run: () => input.current?.focus() },
    { key: "F", label: "Show failed runs only", run: () => toggle("is:failed") },
  ]);
  if (exported) return null;
  const words = freeWords(filter);
  return (
    <div class="home column grow">
      <h1 class="sr">Runs</h1>
      <div class="home-bar">
        <input
          ref={input}
          type="search"
          class="grow"
          aria-label="Filter and search runs"
          aria-describedby="filter-terms"
          placeholder="Filter runs or search their text, e.g. is:failed tool:search cost>0.1"
          spellcheck={false}
          value={typed}
          onInput={(event) => set(event.currentTarget.value)}
        />
        <span id="filter-terms" class="rowline wrap" role="group" aria-label="Quick filters">
          {TERMS.map(([term, label]) => (
            <button
              key={term}
              type="button"
              title={term}
              aria-pressed={typed.split(/\s+/).includes(term)}
              onClick={() => toggle(term)}
            >
              {label}
            </button>
          ))}
        </span>
        <span class="rowline wrap">
          <label class="pick">
            <span class="sr">Time range</span>
            <select
              value={since}
              onChange={(event) => adjust({ since: event.currentTarget.value || null })}
            >
              {RANGES.map(([value, label]) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          </label>
          {shown === "runs" && <SortPicker order={options} />}
          <button
            type="button"
            aria-pressed={group}
            onClick={() => adjust({ group: group ? null : "conversation" })}
          >
            Group by conversation
          </button>
          <button type="button" aria-pressed={all} onClick={() => adjust({ all: all ? null : 1 })}>
            Show empty runs
          </button>
          <FilterTerms insert={(term) => set(`${typed} ${term}`.trim())} />
          <SavedFilters current={typed} apply={set} />
          <ColumnMenu shown={columns} toggle={toggleColumn} />
        </span>
      </div>
      <Totals options={options} version={String(runs.changes)} stale={runs.stale && !runs.error} />
      {open && (
        <p class="understood quiet" role="status">
          Not applied yet: <code>{oneLine(open, 80)}</code>{" "}
          {open.includes('"') ? "(close the quote)" : "(enter a value)"}
        </p>
      )}
      {runs.understood && !runs.stale && (
        <Understood text={runs.understood} words={words} apply={() => set(asPhrase(filter))} />
      )}
      {runs.error && (
        <div class="page-pad">
          <Failed error={runs.error} />
        </div>
      )}
      <Tabs<Shown>
        label="View"
        panel="home-panel"
        current={shown}
        onPick={(to) => adjust({ tab: to === "runs" ? null : to })}
        tabs={TABS}
      />
      <TabPanel panel="home-panel" current={shown}>
        {filter && (shown === "costs" || shown === "tools") && (
          <p class="all-runs quiet">All runs. The filter does not apply here.</p>
        )}
        {shown === "runs" && (
          <RunTable
            runs={runs}
            filtered={filter !== "" || since !== ""}
            words={words}
            grouped={group}
            order={options}
            columns={columns}
          />
        )}
        {shown === "text" && <Hits words={words} />}
        {shown === "trends" && <Trends options={options} version={String(runs.changes)} />}
        {shown === "costs" && <Costs since={since} />}
        {shown === "tools" && <Tools />}
      </TabPanel>
    </div>
  );
}

interface UnderstoodProps {
  text: string;
  words: string;
  apply: () => void;
}

/** What the words of the filter were taken for, and the other reading. */
function Understood({ text, words, apply }: UnderstoodProps) {
  const isSplit = !words.includes('"') && words.includes(" ");
  return (
    <p class="understood quiet">
      Searched: {oneLine(text, 300)}.{" "}
      {isSplit && (
        <button type="button" class="plain link" onClick={apply}>
          Search the exact phrase
        </button>
      )}
    </p>
  );
}

/** Filters that were saved in this browser. */
function SavedFilters({ current, apply }: { current: string; apply: (filter: string) => void }) {
  const [saved, setSaved] = useState<string[]>(() => readSaved());
  const change = (next: string[]): void => {
    keep("filters", JSON.stringify(next.slice(0, SAVED_MAX)));
    setSaved(next.slice(0, SAVED_MAX));
  };
  const text = current.trim();
  return (
    <Menu label="Saved" name="Saved filters" align="right">
      {(close) => (
        <div class="choices">
          <button
            type="button"
            disabled={!text || saved.includes(text)}
            onClick={() => change([text, ...saved])}
          >
            Save this filter
          </button>
          {saved.map((filter) => (
            <span class="rowline" key={filter}>
              <button
                type="button"
                class="plain link grow mono"
                onClick={() => {
                  apply(filter);
                  close();
                }}
              >
                {filter}
              </button>
              <button
                type="button"
                class="plain"
                aria-label={`Delete the filter ${filter}`}
                onClick={() => change(saved.filter((one) => one !== filter))}
              >
                ✕
              </button>
            </span>
          ))}
          {!saved.length && <span class="quiet">No saved filters</span>}
        </div>
      )}
    </Menu>
  );
}

function readSaved(): string[] {
  try {
    const found: unknown = JSON.parse(recall("filters", "[]"));
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}
