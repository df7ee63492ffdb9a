/** The frame of every page: top bar, page, search palette and shortcuts dialog. */

import { useEffect, useState } from "preact/hooks";
import { aboutExport, exported, get } from "./api";
import { lost } from "./connection";
import { Help, helpOpen, useKeys } from "./keys";
import { Compare } from "./pages/compare";
import { Failures } from "./pages/failures";
import { freeWords, splitTyped } from "./pages/filter-text";
import { hitAddress } from "./pages/hit-link";
import { Home } from "./pages/home";
import { Run } from "./pages/run";
import { taskOf } from "./pages/run-columns";
import { Sql } from "./pages/sql";
import { type Command, Palette, paletteOpen, useCommands } from "./palette";
import { Status } from "./parts/badges";
import { Boundary } from "./parts/boundary";
import { ago, bytes, count, dateTime } from "./parts/format";
import { Empty } from "./parts/placeholders";
import { RunSearch } from "./parts/run-search";
import { Share } from "./parts/share";
import { go, href, nextTheme, type Page, route, type Theme, theme } from "./router";
import type { GrepData, Hit, ListData, RunRow } from "./types";
import { CompareMenu } from "./views/same-task";

const SIGN: Record<Theme, string> = { auto: "◐", light: "☀", dark: "☾" };
const THEME_NAME: Record<Theme, string> = { auto: "system", light: "light", dark: "dark" };
const turn = (): void => void (theme.value = nextTheme(theme.peek()));

const RUNS_FOUND_MAX = 12;
/** Not each letter is a search. */
const TYPING_MS = 150;
/** How long to wait for the place of a match in its run. */
const HIT_MS = 4_000;
let latestWords = "";

/** Runs by their id, or by any text in them: task, result, names and payloads. */
async function runsLike(words: string): Promise<Command[]> {
  const text = splitTyped(words.trim()).filter;
  if (exported || !text) return [];
  latestWords = words;
  await new Promise((done) => setTimeout(done, TYPING_MS));
  if (latestWords !== words) return []; // more was typed
  const [, id = "", span = ""] = /^(r\d+)(?:\.(s\d+))?$/.exec(text) ?? [];
  const byId = id !== "";
  const { runs } = await get<ListData>(
    "list",
    byId ? { limit: 1000 } : { filter: text, limit: 200 },
  );
  const inHead = (run: RunRow): boolean =>
    `${taskOf(run)} ${run.name}`.toLowerCase().includes(text);
  const search = byId ? "" : freeWords(text);
  const found = runs
    .filter((run) => !byId || (span ? run.short_id === id : run.short_id.startsWith(id)))
    .sort((one, other) => Number(inHead(other)) - Number(inHead(one)))
    .slice(0, RUNS_FOUND_MAX)
    .map((run) => ({
      title: taskOf(run) || run.name || "Untitled",
      note: `${run.short_id}${span && `.${span}`} · ${ago(run.started_at)}`,
      sign: <Status value={run.outcome} brief />,
      isMatch: true,
      run: () =>
        search ? void goToHit(run.short_id, search) : go(href("run", run.short_id, { span })),
    }));
  if (!found.length || !search) return found;
  const all = href("home", "", { q: text, tab: "text" });
  return [
    ...found,
    { title: `All matches of ${search}`, note: "text", isMatch: true, run: () => go(all) },
  ];
}

/** Open a run at the first match of the words; after a moment without an answer, at its beginning. */
async function goToHit(run: string, words: string): Promise<void> {
  const hits: Promise<Hit[]> = get<GrepData>("grep", {
    pattern: words,
    words: true,
    ignore_case: true,
    id: run,
  })
    .then((data) => data.hits)
    .catch(() => []);
  const late = new Promise<[]>((done) => setTimeout(() => done([]), HIT_MS));
  const found = await Promise.race([hits, late]);
  // What was sent or returned is shown in the pane of the span; a log line is not.
  const hit = found.find((each) => ["input", "output"].includes(each.part)) ?? found[0];
  go(hit ? hitAddress(hit, words) : href("run", run, { find: words }));
}

const PAGES: [Page, string][] = [
  ["home", "Runs"],
  ["groups", "Failures"],
  ["compare", "Compare"],
  ["sql", "SQL"],
];

/** The address of a page; a comparison begins with the run that is shown. */
function addressOf(to: Page): string {
  const { page, id } = route.peek();
  return to === "compare" && page === "run" ? href(to, "", { a: id }) : href(to);
}

interface ExportData {
  made_at: string;
  body_bytes_max: number;
  spans_left_out: number;
  bodies_left_out: number;
}

/** The time of an export, and what is not included in it. */
function About() {
  const [data, setData] = useState<ExportData | null>(null);
  useEffect(() => {
    aboutExport<ExportData>().then(setData, () => undefined);
  }, []);
  if (!data) return <span class="grow" />;
  const left = [
    ...(data.bodies_left_out
      ? [`${count(data.bodies_left_out)} payloads over ${bytes(data.body_bytes_max)}`]
      : []),
    ...(data.spans_left_out ? [`details of ${count(data.spans_left_out)} spans`] : []),
  ];
  const text = `Exported ${dateTime(data.made_at)}.${left.length ? ` Not included: ${left.join(", ")}.` : ""}`;
  return (
    <span class="grow cut quiet" title={text}>
      {text}
    </span>
  );
}

export function App() {
  const { page } = route.value;
  useKeys([
    { key: "ctrl+k", label: "Search", run: () => (paletteOpen.value = !paletteOpen.peek()) },
    { key: "?", label: "Show keyboard shortcuts", run: () => (helpOpen.value = true) },
    { key: "g", label: "Go to all runs", run: () => !exported && go("#/") },
    { key: "T", label: "Switch theme", run: turn },
  ]);
  useCommands(runsLike);
  useCommands(() => [
    ...(exported
      ? []
      : PAGES.map(([to, title]) => ({ title, note: "page", run: () => go(addressOf(to)) }))),
    { title: "Switch theme", note: THEME_NAME[theme.peek()], run: turn },
    { title: "Keyboard shortcuts", note: "?", run: () => void (helpOpen.value = true) },
  ]);
  return (
    <>
      <header class="topbar">
        {exported ? (
          <span class="brand">Vestige</span>
        ) : (
          <a class="brand" href="#/">
            Vestige
          </a>
        )}
        {!exported && (
          <nav aria-label="Pages">
            {PAGES.map(([to, title]) => (
              <a key={to} href={addressOf(to)} aria-current={to === page ? "page" : undefined}>
                {title}
              </a>
            ))}
          </nav>
        )}
        {exported ? <About /> : <span class="grow" />}
        {page === "run" && <RunSearch key={route.value.id} run={route.value.id} />}
        {page === "run" && !exported && (
          <CompareMenu key={`compare ${route.value.id}`} run={route.value.id} />
        )}
        {page === "run" && !exported && (
          <Share key={`share ${route.value.id}`} run={route.value.id} />
        )}
        <button
          type="button"
          class="plain palette-button"
          onClick={() => (paletteOpen.value = true)}
          aria-label="Search (Ctrl K)"
        >
          <span class="word">Search</span> <kbd>Ctrl K</kbd>
        </button>
        <button
          type="button"
          class={page === "run" ? "plain on-wide" : "plain"}
          onClick={turn}
          aria-label={`Theme: ${THEME_NAME[theme.value]}`}
          title={`Theme: ${THEME_NAME[theme.value]}`}
        >
          {SIGN[theme.value]}
        </button>
        <button
          type="button"
          class="plain on-wide"
          onClick={() => (helpOpen.value = true)}
          aria-label="Keyboard shortcuts"
        >
          ?
        </button>
      </header>
      {lost.value && (
        <div class="offline" role="alert">
          Lost connection to Vestige. Trying again… To restart it: <code>vestige ui</code>
        </div>
      )}
      <main class="column grow">
        <Boundary
          what="this page"
          of={`${page} ${route.value.id} ${page === "compare" ? route.value.params.toString() : ""}`}
        >
          {page === "home" && <Home />}
          {page === "groups" && <Failures />}
          {page === "run" && <Run key={route.value.id} />}
          {page === "compare" && <Compare />}
          {page === "sql" && <Sql />}
          {page === "unknown" && (
            <Empty>
              Page not found. <a href="#/">All runs</a>
            </Empty>
          )}
        </Boundary>
      </main>
      <Palette />
      <Help />
    </>
  );
}
