/**
 * One run: its summary, a list of steps (or the tree, or the timeline), and beside it the selected
 * span, or a view of the full run. All share one selection, time range and filter (router.ts).
 */

import { useEffect, useRef } from "preact/hooks";
import { exported } from "../api";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { useCommands } from "../palette";
import { Boundary } from "../parts/boundary";
import { count, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { Split } from "../parts/split";
import { TabPanel, Tabs } from "../parts/tabs";
import { hasTimes } from "../parts/time-bar";
import {
  adjust,
  filter,
  href,
  LISTS,
  openSpan,
  range,
  route,
  runId,
  select,
  selected,
  setFilter,
  setRange,
  showView,
  VIEWS,
  type View,
  view,
} from "../router";
import type { OverviewData } from "../types";
import type { Asked } from "../use-query";
import { useRun } from "../use-run";
import Files from "../views/files";
import { type Lineage, useLineage } from "../views/lineage";
import Logs from "../views/logs";
import Metadata from "../views/metadata";
import { RunPane } from "../views/run-pane";
import { RunSummary } from "../views/run-summary";
import State from "../views/snapshots";
import SpanPane from "../views/span-pane";
import {
  mainSpan,
  type StepIndex,
  spanTitle,
  useOverview,
  useStepIndex,
} from "../views/step-index";
import { Steps } from "../views/steps";
import Timeline from "../views/timeline";
import Transcript from "../views/transcript";
import Tree from "../views/tree";
import type { ViewComponent } from "../views/view-props";

/** Views of the full run, which take the place of the span pane. */
const PAGES: Partial<Record<View, ViewComponent>> = {
  transcript: Transcript,
  logs: Logs,
  state: State,
  files: Files,
  metadata: Metadata,
};
const TITLES: Record<View, string> = {
  steps: "Steps",
  tree: "Tree",
  timeline: "Timeline",
  transcript: "Transcript",
  logs: "Logs",
  state: "Snapshots",
  files: "Files",
  metadata: "Metadata",
};
const FOUND_MAX = 30;
/** Steps of longer runs take seconds to compute; their tree is there at once. */
const STEPS_SPANS_MAX = 20_000;
const NARROW = matchMedia("(max-width: 820px)");

export function Run() {
  const loaded = useRun(runId.value);
  const { run, error, again } = loaded;
  if (error && !run)
    return (
      <div class="page-pad">
        {error.status === 404 ? (
          <Empty>
            Run {oneLine(runId.value, 60)} not found.{" "}
            {!exported && <a href={href("home")}>All runs</a>}
          </Empty>
        ) : (
          <Failed error={error} again={again} />
        )}
      </div>
    );
  if (!run) return <Loading what="the run" />;
  return (
    <>
      {error && <Failed error={error} again={again} />}
      <Shown key={run.run.id} run={run} paused={loaded.paused} pause={loaded.pause} />
    </>
  );
}

interface ShownProps {
  run: RunModel;
  paused: boolean;
  pause: (on: boolean) => void;
}

function Shown({ run, paused, pause }: ShownProps) {
  const overview = useOverview(run);
  const steps = useStepIndex(overview.data);
  const lineage = useLineage(run, overview.data !== null);
  const title = overview.data?.title || run.run.name;
  useEffect(() => {
    document.title = `${oneLine(title, 60)} (${run.run.short_id}) · Vestige`;
  }, [title]);
  useLanding(run, overview, steps);
  const search = useRunKeys(run, paused, pause, steps);
  const shown = shownView(run, overview.data !== null && !steps.steps.length);
  const at = run.at(selected.value);
  const Page = PAGES[shown];
  return (
    <>
      <Boundary what="the summary" of={run.next}>
        <RunSummary
          run={run}
          overview={overview.data}
          lineage={lineage}
          paused={paused}
          pause={pause}
        />
      </Boundary>
      <div class={`viewbar in-${shown}`}>
        <Tabs
          label="Views"
          panel="view"
          current={shown}
          onPick={showView}
          tabs={viewsOf(run, shown).map((name) => ({
            id: name,
            label: TITLES[name],
            note: noteOf(run, name, steps),
          }))}
        />
        <span class="rowline">
          {range.value && (
            <button type="button" onClick={() => setRange(null)}>
              Clear time range
            </button>
          )}
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
      <TabPanel panel="view" current={shown}>
        <Split
          key={shown === "timeline" ? "stacked" : "beside"}
          name="run-pane"
          label={Page ? "Run view" : at === undefined ? "Run details" : "Span details"}
          share={0.64}
          stacked={shown === "timeline"}
          covering={Page !== undefined}
          first={
            <Boundary what={Page ? "the steps" : `the view ${TITLES[shown]}`} of={shown}>
              <List shown={shown} run={run} overview={overview} steps={steps} lineage={lineage} />
            </Boundary>
          }
          second={
            Page ? (
              <Boundary what={`the view ${TITLES[shown]}`} of={shown}>
                <Page run={run} />
              </Boundary>
            ) : at !== undefined ? (
              <Boundary
                what={`span s${run.number(at)}`}
                of={run.number(at)}
                close={() => select(null)}
              >
                <SpanPane run={run} index={at} steps={steps} lineage={lineage} />
              </Boundary>
            ) : NARROW.matches ? null : (
              <RunPane run={run} overview={overview.data} />
            )
          }
        />
      </TabPanel>
    </>
  );
}

interface ListProps {
  shown: View;
  run: RunModel;
  overview: Asked<OverviewData>;
  steps: StepIndex;
  lineage: Lineage | null;
}

function List({ shown, run, overview, steps, lineage }: ListProps) {
  const hasSteps = !overview.data || steps.steps.length > 0;
  if (shown === "tree" || !hasSteps) return <Tree run={run} steps={steps} />;
  if (shown === "timeline") return <Timeline run={run} steps={steps} />;
  return <Steps run={run} overview={overview} steps={steps} lineage={lineage} />;
}

/** The view of the URL; the tree where there are no steps, or where they would take long. */
function shownView(run: RunModel, stepless: boolean): View {
  if (view.value === "steps" && stepless) return "tree";
  const named = route.value.params.get("view");
  return named === null && run.run.span_count > STEPS_SPANS_MAX ? "tree" : view.value;
}

/** The views with something in them. */
const viewsOf = (run: RunModel, shown: View): View[] =>
  VIEWS.filter((name) => name === shown || !isEmpty(run, name));

function isEmpty(run: RunModel, name: View): boolean {
  if (name === "logs") return run.logCount === 0;
  if (name === "state") return !run.hasType("snapshot", "state");
  if (name === "timeline") return !hasTimes(run);
  if (name === "files") return !run.hasType("file", "artifact");
  return false;
}

function noteOf(run: RunModel, name: View, steps: StepIndex): string {
  if (name === "steps") return count(steps.steps.length || null);
  if (name === "tree") return count(Math.max(run.count, run.run.span_count));
  if (name === "logs") return count(run.logCount);
  return "";
}

/** Select the first failure when a run is opened without a span in its link. */
function useLanding(run: RunModel, overview: Asked<OverviewData>, steps: StepIndex): void {
  const landed = useRef(route.peek().params.has("span"));
  // A span that was opened and closed before the overview arrived is not opened again.
  if (selected.value !== null) landed.current = true;
  useEffect(() => {
    if (landed.current || !overview.data || NARROW.matches) return;
    landed.current = true;
    if (!LISTS.includes(view.peek())) return;
    const { cause } = overview.data;
    const failed = steps.steps.find((step) => step.failed);
    // A cause outside of all steps is the run itself, which says less than the step that failed.
    const inStep = cause?.severity === "error" && cause.step !== null ? cause.span : null;
    const first = run.run.outcome === "ok" ? undefined : run.failures[0];
    const at = run.ofShortId(inStep ?? (failed ? mainSpan(failed) : null)) ?? first;
    if (at !== undefined) adjust({ span: `s${run.number(at)}` });
  }, [overview.data]);
}

function useRunKeys(
  run: RunModel,
  paused: boolean,
  pause: (on: boolean) => void,
  steps: StepIndex,
) {
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
    if (next !== undefined) openSpan(run.number(next));
  };
  const views = VIEWS.filter((name) => !isEmpty(run, name));
  useKeys([
    { key: "e", label: "Next failed span", run: () => step(1) },
    { key: "E", label: "Previous failed span", run: () => step(-1) },
    { key: "/", label: "Filter this view", run: () => search.current?.focus() },
    {
      key: "Escape",
      label: "Close panel, or clear time range",
      run: () => (selected.peek() !== null ? select(null) : setRange(null)),
    },
    ...views.map((name, at) => ({
      key: String(at + 1),
      label: TITLES[name],
      run: () => showView(name),
    })),
    ...(run.run.outcome === "running"
      ? [{ key: "p", label: "Pause or resume live updates", run: () => pause(!paused) }]
      : []),
  ]);
  useCommands((words) => [
    ...views.map((name) => ({ title: TITLES[name], note: "view", run: () => showView(name) })),
    ...spansLike(run, words, steps),
  ]);
  return search;
}

function spansLike(
  run: RunModel,
  words: string,
  steps: StepIndex,
): { title: string; note: string; run: () => void }[] {
  if (!words) return [];
  const found = [];
  for (let index = 0; index < run.count && found.length < FOUND_MAX; index++) {
    const title = `${spanTitle(run, index, steps)} ${run.label(index)}`;
    const note = `s${run.number(index)} ${run.type(index)}`;
    if (`${title} ${note}`.toLowerCase().includes(words.trim())) {
      found.push({ title, note, run: () => openSpan(run.number(index)) });
    }
  }
  return found;
}
