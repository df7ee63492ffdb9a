/** One run: the verdict first, then views of one selection and one time range, and the detail pane. */

import { useEffect, useRef } from "preact/hooks";
import { exported } from "../api";
import { useKeys } from "../keys";
import { useRun } from "../loaded";
import type { RunModel } from "../model";
import { useCommands } from "../palette";
import { Boundary } from "../parts/boundary";
import { count, oneLine } from "../parts/format";
import { Failed, Loading } from "../parts/state";
import { Split } from "../parts/split";
import { TabPanel, Tabs } from "../parts/tabs";
import { filter, range, runId, select, selected, setFilter, setRange, showView, view, VIEWS, type View } from "../state";
import { Verdict } from "./verdict";
import Detail from "../views/detail";
import Files from "../views/files";
import Logs from "../views/logs";
import Metadata from "../views/metadata";
import State from "../views/state";
import Timeline from "../views/timeline";
import Transcript from "../views/transcript";
import Tree from "../views/tree";
import type { ViewComponent } from "../views/view";

const COMPONENTS: Record<View, ViewComponent> = {
  transcript: Transcript,
  tree: Tree,
  timeline: Timeline,
  logs: Logs,
  state: State,
  files: Files,
  metadata: Metadata,
};
const TITLE = (name: string): string => name[0]!.toUpperCase() + name.slice(1);
const FOUND_MAX = 30;

export function Run() {
  const loaded = useRun(runId.value);
  const { run, error, again } = loaded;
  useEffect(() => {
    document.title = run ? `${run.run.short_id} ${oneLine(run.run.name, 60)} · Vestige` : "Vestige";
  }, [run?.run.name]);
  if (error && !run) return <div class="page-pad"><Failed error={error} again={again} /></div>;
  if (!run) return <Loading what="the run" />;
  return (
    <>
      {error && <Failed error={error} again={again} />}
      <Shown run={run} paused={loaded.paused} pause={loaded.pause} />
    </>
  );
}

function Shown({ run, paused, pause }: { run: RunModel; paused: boolean; pause: (on: boolean) => void }) {
  const search = useRef<HTMLInputElement>(null);
  const step = (by: 1 | -1): void => {
    const failures = run.failures;
    if (!failures.length) return;
    const now = run.at(selected.peek());
    const next =
      now === undefined
        ? failures[by === 1 ? 0 : failures.length - 1]
        : by === 1
          ? (failures.find((index) => index > now) ?? failures[0])
          : ([...failures].reverse().find((index) => index < now) ?? failures[failures.length - 1]);
    if (next !== undefined) select(run.number(next));
  };
  useKeys([
    { key: "e", say: "next span that failed", run: () => step(1) },
    { key: "E", say: "failed span before", run: () => step(-1) },
    { key: "/", say: "filter this view", run: () => search.current?.focus() },
    { key: "Escape", say: "close the pane, all of the time", run: () => (selected.peek() !== null ? select(null) : setRange(null)) },
    ...VIEWS.map((name, at) => ({ key: String(at + 1), say: TITLE(name), run: () => showView(name) })),
    ...(run.run.outcome === "running" ? [{ key: "p", say: "pause or go on following", run: () => pause(!paused) }] : []),
  ]);
  useCommands((words) => [
    ...VIEWS.map((name) => ({ title: TITLE(name), note: "view", run: () => showView(name) })),
    ...spansLike(run, words),
  ]);
  const View = COMPONENTS[view.value];
  const at = run.at(selected.value);
  const left = (
    <>
      <Boundary what="the verdict" of={run.next}>
        <Verdict run={run} paused={paused} pause={pause} />
      </Boundary>
      <div class="viewbar">
        <Tabs
          label="Views"
          panel="view"
          current={view.value}
          onPick={showView}
          tabs={VIEWS.map((name) => ({ id: name, label: TITLE(name), note: note(run, name) }))}
        />
        <span class="rowline">
          {range.value && <button type="button" onClick={() => setRange(null)}>All of the time</button>}
          <input
            ref={search}
            type="search"
            placeholder="Filter  /"
            aria-label="Filter this view"
            value={filter.value}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </span>
      </div>
      <TabPanel panel="view" current={view.value}>
        <Boundary what={`the view ${TITLE(view.value)}`} of={view.value}><View run={run} /></Boundary>
      </TabPanel>
    </>
  );
  return (
    <Split
      name="run"
      label="Detail"
      first={left}
      second={at === undefined ? null : (
        <Boundary what={`span s${run.number(at)}`} of={run.number(at)} close={() => select(null)}>
          <Detail run={run} index={at} key={run.number(at)} />
        </Boundary>
      )}
    />
  );
}

function note(run: RunModel, name: View): string {
  if (name === "tree") return count(run.count);
  if (name === "logs") return count(run.logCount);
  return "";
}

function spansLike(run: RunModel, words: string): { title: string; note: string; run: () => void }[] {
  if (!words) return [];
  const found = [];
  for (let index = 0; index < run.count && found.length < FOUND_MAX; index++) {
    const title = `${run.name(index)} ${run.label(index)}`;
    const note = `s${run.number(index)} ${run.type(index)}`;
    if (`${title} ${note}`.toLowerCase().includes(words.trim())) {
      found.push({ title, note, run: () => select(run.number(index)) });
    }
  }
  return found;
}

export const canAsk = !exported;
