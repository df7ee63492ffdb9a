/** What was said: log lines by level, component and words; a line opens the span that it was said in. */

import { useCallback, useMemo, useState } from "preact/hooks";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { Level } from "../parts/badges";
import { count, offset, oneLine, visible } from "../parts/format";
import { Empty } from "../parts/state";
import { VirtualList } from "../parts/virtual";
import { filter, range, select, selected, type Range } from "../state";
import "./rows.css";
import type { ViewProps } from "./view";

const LEVELS = ["debug", "info", "warn", "error"];

export default function Logs({ run }: ViewProps) {
  const [least, setLeast] = useState("debug");
  const [component, setComponent] = useState("");
  const [opened, open] = useState<number | null>(null);
  const words = filter.value;
  const time = range.value;
  const components = useMemo(() => componentsOf(run), [run]);
  const lines = useMemo(
    () => wanted(run, least, component, words, time),
    [run, least, component, words, time?.from_us, time?.to_us],
  );
  const keyOf = useCallback((row: number) => lines[row]!, [lines]);
  const active = opened === null ? -1 : lines.indexOf(opened);
  const step = (by: 1 | -1): void => {
    const next = lines[active < 0 ? 0 : Math.min(Math.max(active + by, 0), lines.length - 1)];
    if (next === undefined) return;
    open(next);
    const span = run.log(next).span;
    if (span !== undefined && selected.peek() !== null) select(run.number(span));
  };
  useKeys([
    { key: "j", say: "next line", run: () => step(1) },
    { key: "k", say: "line before", run: () => step(-1) },
  ]);
  if (!run.logCount) return <Empty>No log lines were recorded.</Empty>;
  return (
    <div class="column grow">
      <div class="rowline wrap viewtools">
        <label>
          <span class="quiet">At least </span>
          <select value={least} onChange={(event) => setLeast(event.currentTarget.value)}>
            {LEVELS.map((level) => <option key={level}>{level}</option>)}
          </select>
        </label>
        <label>
          <span class="quiet">From </span>
          <select value={component} onChange={(event) => setComponent(event.currentTarget.value)}>
            <option value="">all components</option>
            {components.map((name) => <option key={name} value={name}>{oneLine(name, 40)}</option>)}
          </select>
        </label>
        <span class="quiet" role="status">{count(lines.length)} of {count(run.logCount)} lines</span>
      </div>
      {lines.length === 0 ? (
        <Empty>No line matches.</Empty>
      ) : (
        <VirtualList
          label="Log lines"
          count={lines.length}
          measured
          keyOf={keyOf}
          active={active < 0 ? null : active}
          follow={run.run.outcome === "running"}
          rowProps={(row) => ({
            class: `logrow ${lines[row] === opened ? "chosen" : ""}`,
            onClick: () => open(lines[row] === opened ? null : lines[row]!),
          })}
          row={(row) => <LogRow run={run} index={lines[row]!} open={lines[row] === opened} />}
        />
      )}
    </div>
  );
}

function LogRow({ run, index, open }: { run: RunModel; index: number; open: boolean }) {
  const log = run.log(index);
  return (
    <>
      <div class="rowline logline">
        <span class="mono quiet num">{offset(log.time_us)}</span>
        <span class="level"><Level value={oneLine(log.level, 12)} /></span>
        <span class="quiet cut component" title={oneLine(log.component, 80)}>{oneLine(log.component, 30)}</span>
        <span class="cut grow trace">{oneLine(log.message, 400)} <span class="quiet">{oneLine(log.label, 160)}</span></span>
        {log.span !== undefined && (
          <button
            type="button"
            class="plain mono"
            title={`Said in ${oneLine(run.name(log.span), 60)}`}
            onClick={(event) => {
              event.stopPropagation();
              select(run.number(log.span!));
            }}
          >
            s{run.number(log.span)}
          </button>
        )}
      </div>
      {open && (
        <div class="logwhole">
          <pre class="trace">{visible(log.message)}</pre>
          {log.label && <pre class="trace quiet">{visible(log.label)}</pre>}
          {log.cut && <div class="quiet">Cut here: {log.span === undefined ? "the whole line is in the store" : `the whole is with s${run.number(log.span)}`}.</div>}
        </div>
      )}
    </>
  );
}

function componentsOf(run: RunModel): string[] {
  const found = new Set<string>();
  for (let index = 0; index < run.logCount; index++) found.add(run.log(index).component);
  return [...found].sort();
}

function wanted(run: RunModel, least: string, component: string, words: string, time: Range | null): number[] {
  const from = LEVELS.indexOf(least);
  const text = words.trim().toLowerCase();
  const found: number[] = [];
  for (let index = 0; index < run.logCount; index++) {
    const log = run.log(index);
    const level = LEVELS.indexOf(log.level);
    if (level >= 0 && level < from) continue; // a level that nobody knows is always shown
    if (component && log.component !== component) continue;
    if (time && (log.time_us < time.from_us || log.time_us > time.to_us)) continue;
    if (text && !`${log.message} ${log.label} ${log.component}`.toLowerCase().includes(text)) continue;
    found.push(index);
  }
  return found;
}
