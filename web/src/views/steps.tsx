/** The steps of a run: headline, result, position in time, duration, cost, failure. */

import { useCallback, useMemo } from "preact/hooks";
import type { RunModel } from "../model";
import { Kind, kindClass } from "../parts/badges";
import { duration, oneLine, price } from "../parts/format";
import { NoteMark, useNotes } from "../parts/notes";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { hasTimes, TimeBar } from "../parts/time-bar";
import { VirtualList } from "../parts/virtual-list";
import { filter, go, openSpan, type Range, range, selected, view } from "../router";
import type { NotesData, OverviewData, StepRow } from "../types";
import type { Asked } from "../use-query";
import { Branch, ForkLink, forksAt, type Lineage } from "./lineage";
import { rollUpSteps, sumOf, type Total } from "./roll-up";
import { useSteps } from "./selection";
import { compareHref } from "./span-compare";
import { mainSpan, type StepIndex, spansOf } from "./step-index";
import { readingSpan } from "./transcript-tools";
import { priceOf } from "./use-span-totals";
import "./steps.css";

const ROW = 46;
const INDENT_MAX = 6;

interface Props {
  run: RunModel;
  overview: Asked<OverviewData>;
  steps: StepIndex;
  lineage: Lineage | null;
}

export function Steps({ run, overview, steps, lineage }: Props) {
  const words = filter.value;
  const time = range.value;
  const rows = useMemo(
    () => steps.steps.filter((step) => matches(step, words) && overlaps(run, step, time)),
    [steps, words, time?.from_us, time?.to_us],
  );
  const spans = useMemo(
    () => rows.map((step) => run.ofShortId(mainSpan(step))).filter((at) => at !== undefined),
    [rows, run],
  );
  const keyOf = useCallback((row: number) => rows[row]!.number, [rows]);
  useSteps(run, spans);
  const at = run.at(selected.value);
  const chosen = at === undefined ? undefined : steps.of(run.shortId(at));
  const notes = useNotes(run.run.short_id);
  const parted = steps.of(lineage?.live_from);
  const costs = useMemo(() => rollUpSteps(steps.steps), [steps]);
  const agents = useMemo(() => new Set(steps.steps.map((step) => step.agent)).size, [steps]);
  if (overview.error && !overview.data)
    return <Failed error={overview.error} again={overview.again} />;
  if (!overview.data) return <Loading what="the steps" />;
  if (!rows.length)
    return (
      <Empty>
        {steps.steps.length ? "No matches" : "This run has no steps. See Tree or Logs."}
      </Empty>
    );
  // Beside the transcript, the list follows the reader.
  const read = view.value === "transcript" ? steps.of(readingSpan.value) : undefined;
  const active = read ? rows.indexOf(read) : chosen ? rows.indexOf(chosen) : firstFailure(rows);
  return (
    <VirtualList
      label="Steps"
      class="grow steps"
      count={rows.length}
      height={ROW}
      measured
      keyOf={keyOf}
      active={active < 0 ? null : active}
      centre
      follow={run.run.outcome === "running"}
      rowProps={(row) => ({
        class: `step ${rows[row] === chosen ? "chosen" : ""} ${rows[row] === read ? "reading" : ""} ${rows[row]!.failed ? "failed" : ""} ${parted && rows[row]!.number < parted.number ? "replayed" : ""}`,
        title: "Shift-click another step to compare it with the selected one",
        onClick: (event: MouseEvent) => {
          const other = run.ofShortId(mainSpan(rows[row]!));
          if (event.shiftKey && at !== undefined && other !== undefined && other !== at) {
            event.preventDefault();
            go(compareHref(run, at, compared(run, steps, at, rows[row]!) ?? other));
          } else open(run, mainSpan(rows[row]!));
        },
      })}
      row={(row) => (
        <Row
          run={run}
          step={rows[row]!}
          withAgent={agents > 1 && rows[row]!.agent !== rows[row - 1]?.agent}
          isOpen={rows[row] === chosen}
          notes={[...new Set(spansOf(rows[row]!))].flatMap((span) => notes.get(span) ?? [])}
          lineage={lineage}
          parted={rows[row] === parted}
          steps={steps}
          costs={costs}
        />
      )}
    />
  );
}

/** The model call of a step, if the selected span is a model call. */
function compared(run: RunModel, steps: StepIndex, at: number, step: StepRow) {
  const isCall = run.type(at) === "llm" && steps.of(run.shortId(at)) !== undefined;
  return isCall ? run.ofShortId(step.span) : undefined;
}

const firstFailure = (rows: StepRow[]): number => rows.findIndex((step) => step.failed);

function open(run: RunModel, span: string | null): void {
  const index = run.ofShortId(span);
  if (index !== undefined) openSpan(run.number(index));
}

function labelOf(step: StepRow): string {
  const outcome = step.failed ? "failed, " : "";
  return `Step ${step.number}, ${outcome}${oneLine(step.title || step.headline, 160)}`;
}

function matches(step: StepRow, words: string): boolean {
  const needle = words.trim().toLowerCase();
  if (!needle) return true;
  if (needle === "is:failed") return step.failed;
  const actions = step.actions.map((action) => `${action.name} ${action.error ?? ""}`);
  return [step.headline, step.agent, step.model, step.span, step.error, ...actions]
    .join(" ")
    .toLowerCase()
    .includes(needle);
}

function overlaps(run: RunModel, step: StepRow, time: Range | null): boolean {
  const begin = startOf(run, step);
  if (!time || begin === null) return true;
  const end = begin + (step.duration_ns ?? 0) / 1_000;
  return begin <= time.to_us && end >= time.from_us;
}

function startOf(run: RunModel, step: StepRow): number | null {
  const index = run.ofShortId(step.span ?? step.spans[0] ?? null);
  return index === undefined ? null : run.start(index);
}

interface RowProps {
  run: RunModel;
  step: StepRow;
  withAgent: boolean;
  isOpen: boolean;
  notes: NotesData["notes"];
  lineage: Lineage | null;
  /** True for the first step of a fork that was not answered from the recording. */
  parted: boolean;
  steps: StepIndex;
  /** Of each step with the steps of its sub-agents, by number. */
  costs: ReadonlyMap<number, Total>;
}

function Row(props: RowProps) {
  const { run, step, withAgent, isOpen, notes, lineage, parted, steps, costs } = props;
  const total = costs.get(step.number);
  const indent = Math.min(step.depth, INDENT_MAX) * 14;
  const title = oneLine(step.title || step.headline, 200) || "Step without text";
  const forks = forksAt(lineage, new Set(spansOf(step)));
  return (
    <div class="step-line" style={{ paddingLeft: `${8 + indent}px` }}>
      {parted && (
        <span class="step-origin">
          <Branch /> Forked here from {lineage?.origin?.run}: the steps above are its recording
        </span>
      )}
      <span class="step-number quiet">{step.number}</span>
      <button
        type="button"
        class="plain step-text"
        aria-label={labelOf(step)}
        aria-current={isOpen ? "step" : undefined}
      >
        <span class="cut trace step-title">
          {step.failed && <span aria-hidden="true">✕ </span>}
          {withAgent && step.agent && <span class="quiet">{oneLine(step.agent, 30)}: </span>}
          <NoteMark notes={notes} />
          {title}
        </span>
        <span class="cut trace quiet step-result">{resultOf(step)}</span>
      </button>
      {hasTimes(run) ? (
        <TimeBar
          run={run}
          start_us={startOf(run, step)}
          duration_us={(step.duration_ns ?? 0) / 1_000}
        />
      ) : (
        <span />
      )}
      <span class="step-numbers">
        {hasTimes(run) && (
          <span class="num">
            {duration(step.duration_ns === null ? null : step.duration_ns / 1_000) || "…"}
          </span>
        )}
        <span class="num quiet" title={sharesOf(step, total)}>
          {priceOf(total)}
        </span>
      </span>
      {isOpen && <Actions run={run} step={step} steps={steps} costs={costs} />}
      {forks.length > 0 && (
        <span class="step-forks">
          <Branch />
          {forks.map((fork) => (
            <ForkLink key={fork.run} fork={fork} detailed />
          ))}
        </span>
      )}
    </div>
  );
}

/** What a step's own call and its sub-agents cost, if it has any. */
function sharesOf(step: StepRow, total: Total | undefined): string {
  const own = step.cost_usd ?? 0;
  if (!total || total.usd <= own) return "";
  return `Own call ${price(own, true)}, sub-agents ${price(total.usd - own, total.complete)}`;
}

function resultOf(step: StepRow): string {
  const result = oneLine(step.result, 200);
  if (!result || result === "open") return "";
  return step.failed || result.includes(" → ") ? result : `→ ${result}`;
}

interface ActionsProps {
  run: RunModel;
  step: StepRow;
  steps: StepIndex;
  costs: ReadonlyMap<number, Total>;
}

/** What the chosen step executed, and its model call. */
function Actions({ run, step, steps, costs }: ActionsProps) {
  const called = steps.steps.filter((each) => each.parent === step.number);
  const own = step.cost_usd === null ? null : { usd: step.cost_usd, complete: true, tokens: 0 };
  const entries = [
    ...(step.span
      ? [
          {
            span: step.span,
            name: step.model ?? "model call",
            failed: step.error !== null,
            total: own,
          },
        ]
      : []),
    ...step.actions
      .filter((action) => action.span !== null && action.span !== step.span)
      .map((action) => ({
        span: action.span!,
        name: action.name,
        failed: action.error !== null,
        total: sumOf(
          costs,
          called.map((each) => each.number).filter((number) => action.steps.includes(number)),
        ),
      })),
  ].filter((entry) => run.ofShortId(entry.span) !== undefined);
  if (entries.length < 2) return null;
  return (
    <span class="step-actions">
      {entries.map(({ span, name, failed, total }) => {
        const index = run.ofShortId(span)!;
        const type = run.type(index);
        return (
          <button
            key={span}
            type="button"
            class={`plain ${kindClass(type)} ${failed ? "failed" : ""}`}
            aria-pressed={selected.value === run.number(index)}
            onClick={(event) => {
              event.stopPropagation();
              openSpan(run.number(index));
            }}
          >
            <Kind type={oneLine(type, 16)} />
            <span class="cut trace">
              {failed && "✕ "}
              {oneLine(name, 80)}
            </span>
            <span class="quiet nowrap">
              {[priceOf(total), duration(run.duration(index))].filter(Boolean).join(" · ")}
            </span>
          </button>
        );
      })}
    </span>
  );
}
