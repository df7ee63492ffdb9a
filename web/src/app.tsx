/** The frame of every page: the bar on top, the page, and what may lie over it. */

import { useEffect, useState } from "preact/hooks";
import { aboutExport, exported, get } from "./api";
import { Help, helpOpen, useKeys } from "./keys";
import { Boundary } from "./parts/boundary";
import { bytes, count } from "./parts/format";
import { Palette, paletteOpen, useCommands, type Command } from "./palette";
import { Compare } from "./pages/compare";
import { Home } from "./pages/home";
import { Run } from "./pages/run";
import { Sql } from "./pages/sql";
import type { ListData } from "./types";
import { go, href, route, theme, type Page, type Theme } from "./state";

const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const SIGN: Record<Theme, string> = { auto: "◐", light: "☀", dark: "☾" };
const turn = (): void => void (theme.value = NEXT[theme.peek()]);

/** Runs by their id or name, from any page. */
async function runsLike(words: string): Promise<Command[]> {
  const text = words.trim();
  if (exported || !text) return [];
  const byId = /^r\d+$/.test(text);
  const { runs } = await get<ListData>("list", byId ? { limit: 1000 } : { name: text, limit: 12 });
  return runs
    .filter((run) => !byId || run.short_id.startsWith(text))
    .slice(0, 12)
    .map((run) => ({ title: run.name, note: `run ${run.short_id} ${run.outcome}`, run: () => go(href("run", run.short_id)) }));
}

const PAGES: [Page, string][] = [["home", "Runs"], ["compare", "Compare"], ["sql", "SQL"]];

interface ExportData {
  made_at: string;
  body_bytes_max: number;
  spans_left_out: number;
  bodies_left_out: number;
}

/** Of an exported page: when it was made, and what is not in it. */
function About() {
  const [data, setData] = useState<ExportData | null>(null);
  useEffect(() => {
    aboutExport<ExportData>().then(setData, () => undefined);
  }, []);
  if (!data) return <span class="grow" />;
  const left = [
    ...(data.bodies_left_out ? [`${count(data.bodies_left_out)} bodies`] : []),
    ...(data.spans_left_out ? [`details of ${count(data.spans_left_out)} spans`] : []),
  ];
  const told = `Exported ${data.made_at.slice(0, 16).replace("T", " ")}. Bodies up to ${bytes(data.body_bytes_max)} are in it${left.length ? `; left out: ${left.join(", ")}` : ""}.`;
  return <span class="grow cut quiet" title={told}>{told}</span>;
}

export function App() {
  const { page } = route.value;
  useKeys([
    { key: "ctrl+k", say: "go to a run, a span, a view", run: () => (paletteOpen.value = !paletteOpen.peek()) },
    { key: "?", say: "this list", run: () => (helpOpen.value = true) },
    { key: "g", say: "all runs", run: () => !exported && go("#/") },
    { key: "T", say: "light, dark, or as the system", run: turn },
  ]);
  useCommands(runsLike);
  useCommands(() => [
    ...(exported ? [] : PAGES.map(([to, title]) => ({ title, note: "page", run: () => go(href(to)) }))),
    { title: "Light or dark", note: `now: ${theme.peek()}`, run: turn },
    { title: "Keyboard", note: "?", run: () => void (helpOpen.value = true) },
  ]);
  return (
    <>
      <header class="topbar">
        {exported ? <span class="brand">Vestige</span> : <a class="brand" href="#/">Vestige</a>}
        {!exported && (
          <nav aria-label="Pages">
            {PAGES.map(([to, title]) => (
              <a key={to} href={href(to)} aria-current={to === page ? "page" : undefined}>{title}</a>
            ))}
          </nav>
        )}
        {exported ? <About /> : <span class="grow" />}
        <button type="button" class="plain" onClick={() => (paletteOpen.value = true)} aria-label="Go to (Ctrl K)">
          <span class="word">Go to</span> <kbd>Ctrl K</kbd>
        </button>
        <button type="button" class="plain" onClick={turn} aria-label={`Colours: ${theme.value}`} title={`Colours: ${theme.value}`}>
          {SIGN[theme.value]}
        </button>
        <button type="button" class="plain" onClick={() => (helpOpen.value = true)} aria-label="Keyboard">?</button>
      </header>
      <main class="column grow">
        <Boundary what="this page" of={`${page} ${route.value.id}`}>
          {page === "home" && <Home />}
          {page === "run" && <Run key={route.value.id} />}
          {page === "compare" && <Compare />}
          {page === "sql" && <Sql />}
        </Boundary>
      </main>
      <Palette />
      <Help />
    </>
  );
}
