/** Log lines by level, source, event and text; an open line shows all that was logged with it. */

import { useCallback, useMemo, useState } from "preact/hooks";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { Level } from "../parts/badges";
import { count, offset, oneLine, visible } from "../parts/format";
import { JsonTree } from "../parts/json-tree";
import { Empty } from "../parts/placeholders";
import { RenderedText } from "../parts/rendered-text";
import { parseJson } from "../parts/text-kind";
import { VirtualList } from "../parts/virtual-list";
import { filter, openSpan, type Range, range, select, selected } from "../router";
import "./rows.css";
import type { ViewProps } from "./view-props";

const LEVELS = ["debug", "info", "warn", "error"];
const LEVEL_NAMES: Record<string, string> = {
  debug: "Debug and above",
  info: "Info and above",
  warn: "Warning and above",
  error: "Error",
};

export default function Logs({ run }: ViewProps) {
  const [least, setLeast] = useState("debug");
  const [component, setComponent] = useState("");
  const [event, setEvent] = useState("");
  const [opened, open] = useState<number | null>(null);
  const words = filter.value;
  const time = range.value;
  const facets = useMemo(() => facetsOf(run), [run]);
  const lines = useMemo(
    () => matchingLines(run, { least, component, event, words, time }),
    [run, least, component, event, words, time?.from_us, time?.to_us],
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
    { key: "j", label: "Next line", run: () => step(1) },
    { key: "k", label: "Previous line", run: () => step(-1) },
  ]);
  if (!run.logCount) return <Empty>No log lines were recorded.</Empty>;
  return (
    <div class="column grow">
      <div class="rowline wrap viewtools">
        <label>
          <span class="quiet">Level: </span>
          <select value={least} onChange={(event) => setLeast(event.currentTarget.value)}>
            {LEVELS.map((level) => (
              <option key={level} value={level}>
                {LEVEL_NAMES[level]}
              </option>
            ))}
          </select>
        </label>
        <Facet name="Source" counts={facets.components} value={component} set={setComponent} />
        {facets.events.size > 0 && (
          <Facet name="Event" counts={facets.events} value={event} set={setEvent} />
        )}
        <span class="quiet" role="status">
          {lines.length === run.logCount ? "" : `${count(lines.length)} of `}
          {count(run.logCount)} log {run.logCount === 1 ? "line" : "lines"}
        </span>
      </div>
      {lines.length === 0 ? (
        <Empty>No matching log lines</Empty>
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
        <span class="level">
          <Level value={oneLine(log.level, 12)} />
        </span>
        <span class="quiet cut component" title={oneLine(log.component, 80)}>
          {oneLine(log.component, 30)}
        </span>
        <span class="cut grow trace">
          {oneLine(log.message, 400)} <span class="quiet">{oneLine(log.label, 160)}</span>
        </span>
        {log.span !== undefined && (
          <button
            type="button"
            class="plain mono"
            title={`Logged in ${oneLine(run.name(log.span), 60)}`}
            onClick={(event) => {
              event.stopPropagation();
              openSpan(run.number(log.span!));
            }}
          >
            s{run.number(log.span)}
          </button>
        )}
      </div>
      {open && <Context run={run} index={index} />}
    </>
  );
}

/** The full message, everything that was logged with it, and the lines around it. */
function Context({ run, index }: { run: RunModel; index: number }) {
  const log = run.log(index);
  const values = parseJson(log.attributes);
  return (
    <div class="logwhole">
      <RenderedText text={log.message} as="output" />
      {values && Object.keys(values).length > 0 ? (
        <JsonTree value={values} label="Context" />
      ) : (
        log.label && <pre class="trace quiet">{visible(log.label)}</pre>
      )}
      {log.cut && (
        <div class="quiet">
          Truncated.{log.span === undefined ? "" : ` Full text in s${run.number(log.span)}`}
        </div>
      )}
    </div>
  );
}

interface FacetProps {
  name: string;
  counts: Map<string, number>;
  value: string;
  set: (value: string) => void;
}

function Facet({ name, counts, value, set }: FacetProps) {
  return (
    <label>
      <span class="quiet">{name}: </span>
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        <option value="">All</option>
        {[...counts].sort(byCount).map(([each, times]) => (
          <option key={each} value={each}>
            {oneLine(each, 40)} ({count(times)})
          </option>
        ))}
      </select>
    </label>
  );
}

const byCount = (a: [string, number], b: [string, number]): number =>
  b[1] - a[1] || (a[0] < b[0] ? -1 : 1);

/** The event that a line names, from the attributes that structured loggers write. */
const EVENT = /"event(?:\.name)?":\s*"((?:[^"\\]|\\.){1,120})"/;
const eventOf = (attributes: string): string => EVENT.exec(attributes)?.[1] ?? "";

function facetsOf(run: RunModel): { components: Map<string, number>; events: Map<string, number> } {
  const components = new Map<string, number>();
  const events = new Map<string, number>();
  const add = (to: Map<string, number>, value: string): void => {
    if (value) to.set(value, (to.get(value) ?? 0) + 1);
  };
  for (let index = 0; index < run.logCount; index++) {
    const log = run.log(index);
    add(components, log.component);
    add(events, eventOf(log.attributes));
  }
  return { components, events };
}

interface Choice {
  least: string;
  component: string;
  event: string;
  words: string;
  time: Range | null;
}

function matchingLines(run: RunModel, choice: Choice): number[] {
  const { component, event, time } = choice;
  const from = LEVELS.indexOf(choice.least);
  const text = choice.words.trim().toLowerCase();
  const found: number[] = [];
  for (let index = 0; index < run.logCount; index++) {
    const log = run.log(index);
    const level = LEVELS.indexOf(log.level);
    if (level >= 0 && level < from) continue; // an unknown level is always shown
    if (component && log.component !== component) continue;
    if (event && eventOf(log.attributes) !== event) continue;
    if (time && (log.time_us < time.from_us || log.time_us > time.to_us)) continue;
    const all = `${log.message} ${log.label} ${log.component} ${log.attributes}`;
    if (text && !all.toLowerCase().includes(text)) continue;
    found.push(index);
  }
  return found;
}
