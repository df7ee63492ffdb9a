/** Two runs side by side: the first difference is selected, identical steps are folded. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { outcomeWord, Status } from "../parts/badges";
import { cost, count, dateTime, durationMs, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { Split } from "../parts/split";
import { VirtualList } from "../parts/virtual-list";
import { href, route } from "../router";
import type {
  Delta,
  DiffRow,
  ListData,
  OverviewData,
  RunsDiffData,
  SpanData,
  SpanDiffData,
} from "../types";
import { useAnswer } from "../use-query";
import { useRun } from "../use-run";
import { Messages } from "../views/messages";
import { Differences, Fields } from "../views/span-diff";
import { StepIndex } from "../views/step-index";
import { Values } from "../views/values";
import { ChooseRuns } from "./choose-runs";
import { CompareMany, firstDifference } from "./compare-many";
import { taskOf } from "./run-columns";
import "./compare.css";

/** On a narrow screen the selected difference covers the steps. */
const NARROW = matchMedia("(max-width: 820px)");

/** `r7.s12`: a span, not a run. */
const isSpan = (id: string): boolean => /\.s\d+$/.test(id);

export function Compare() {
  const { params } = route.value;
  const many = (params.get("runs") ?? "").split(",").filter(Boolean);
  const a = params.get("a") ?? "";
  const b = params.get("b") ?? "";
  if (many.length > 1) return <CompareMany ids={many} />;
  if (!a || !b) return <ChooseRuns a={a} b={b} />;
  if (isSpan(a) && isSpan(b)) return <ComparedSpans key={`${a} ${b}`} a={a} b={b} />;
  return <ComparedRuns key={`${a} ${b}`} a={a} b={b} />;
}

function ComparedRuns({ a, b }: { a: string; b: string }) {
  const { data, error, loading } = useAnswer<RunsDiffData>("diff", { a, b });
  if (error)
    return (
      <div class="page-pad">
        <Failed error={error} />
      </div>
    );
  if (loading || !data) return <Loading what="both runs" />;
  return <Compared data={data} a={a} b={b} />;
}

/** Two spans of one run or of two. */
function ComparedSpans({ a, b }: { a: string; b: string }) {
  const { data, error } = useAnswer<SpanDiffData>("diff", { a, b });
  useEffect(() => {
    document.title = `Spans ${a} and ${b} · Vestige`;
  }, [a, b]);
  return (
    <div class="scroll grow" tabIndex={0} role="region" aria-label="Both spans">
      <div class="page-pad rowline wrap">
        <h1 class="grow">Compare two spans</h1>
        <a class="button" href={href("compare", "", { a: b, b: a })}>
          Swap
        </a>
      </div>
      <div class="page-pad known-run">
        <SpanHead id={a} label="Before" />
        <SpanHead id={b} label="After" />
      </div>
      {error && <Failed error={error} />}
      {data ? <Differences data={data} /> : !error && <Loading what="both spans" />}
    </div>
  );
}

/** A span of a comparison: its run, its step and what it did. */
function SpanHead({ id, label }: { id: string; label: string }) {
  const [run = "", span = ""] = id.split(".");
  const { data } = useAnswer<OverviewData>("overview", { id: run });
  const step = data && new StepIndex(data.steps).of(id);
  return (
    <div class="rowline">
      <span class="quiet">{label}</span>
      <a class="mono" href={href("run", run, { span })}>
        {id}
      </a>
      {step && <b class="nowrap">Step {step.number}</b>}
      <span class="cut trace">{oneLine(step?.title || data?.title || "", 160)}</span>
    </div>
  );
}

function Compared({ data, a, b }: { data: RunsDiffData; a: string; b: string }) {
  const left = useRun(a).run;
  const right = useRun(b).run;
  const [picked, pick] = useState<number | null>(NARROW.matches ? null : data.first_row);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const lines = useMemo(() => unfolded(data.rows, open, left, right), [data, open, left, right]);
  const at = lines.findIndex((line) => line.row === picked && line.inside === null);
  const changed = useMemo(
    () =>
      data.rows.flatMap((row, index) =>
        row.mark === "=" || row.consequence || isHeading(row) ? [] : [index],
      ),
    [data],
  );
  const step = (by: 1 | -1): void => {
    const now = changed.indexOf(picked ?? -1);
    const next = changed[Math.min(Math.max(now + by, 0), changed.length - 1)];
    if (next !== undefined) pick(next);
  };
  useKeys([
    { key: "j", label: "Next difference", run: () => step(1) },
    { key: "k", label: "Previous difference", run: () => step(-1) },
  ]);
  const toggle = (row: number): void => {
    const next = new Set(open);
    if (!next.delete(row)) next.add(row);
    setOpen(next);
  };
  const row = picked === null ? undefined : data.rows[picked];
  const first = (
    <>
      <Heads data={data} left={left} right={right} a={a} b={b} />
      {data.rows.length === 0 ? (
        <Empty>Nothing to compare: both runs are empty</Empty>
      ) : (
        <VirtualList
          label="Steps of both runs"
          count={lines.length}
          measured
          height={30}
          active={at < 0 ? null : at}
          rowProps={(index) => {
            const line = lines[index]!;
            return {
              class: `pair mark${MARKS[line.mark] ?? ""} ${isHeading(data.rows[line.row]!) ? "heading" : ""} ${line.row === picked && line.inside === null ? "chosen" : ""}`,
              onClick: () =>
                (line.mark === "=" && line.inside === null) || line.mark === "…"
                  ? toggle(line.row)
                  : pick(line.row),
            };
          }}
          row={(index) => (
            <Pair line={lines[index]!} data={data} a={a} b={b} open={open.has(lines[index]!.row)} />
          )}
        />
      )}
    </>
  );
  return (
    <Split
      name="compare"
      label="Selected difference"
      first={first}
      second={
        row && row.mark !== "=" ? (
          <Detail
            key={picked}
            row={row}
            a={a}
            b={b}
            run={row.a === null ? right : left}
            close={() => pick(null)}
          />
        ) : null
      }
    />
  );
}

/** An agent or a step of which the rows inside say what differs. */
const isHeading = (row: DiffRow): boolean => row.container === true;

const MARKS: Record<string, string> = {
  "=": "-same",
  "~": "-changed",
  "+": "-added",
  "-": "-gone",
};
/** The title of a row's mark, for example `Only in r170`. */
function markTitle(mark: string, a: string, b: string): string {
  if (mark === "+") return `Only in ${b}`;
  return mark === "-" ? `Only in ${a}` : "Different";
}

/** What differs in a row, for example `Different result`. */
function difference(row: DiffRow, a: string, b: string): string {
  const title = markTitle(row.mark, a, b);
  return row.mark === "~" && row.class ? `${title} ${row.class}` : title;
}

interface Line {
  row: number;
  /** Position inside an unfolded group of identical steps. */
  inside: number | null;
  mark: string;
  a: string;
  b: string;
  depth: number;
}

/** Return the visible lines: identical steps, and prompts that only repeat a difference, are folded. */
function unfolded(
  rows: DiffRow[],
  open: ReadonlySet<number>,
  left: RunModel | null,
  right: RunModel | null,
): Line[] {
  return rows.flatMap((row, at): Line[] => {
    if (row.mark !== "=") {
      const own: Line = {
        row: at,
        inside: null,
        mark: row.mark,
        a: row.a_step ?? row.a_text ?? "",
        b: row.b_step ?? row.b_text ?? "",
        depth: row.depth ?? 0,
      };
      if (!row.consequence) return [own];
      let first = at;
      while (rows[first - 1]?.consequence) first--;
      if (at > first) return open.has(first) ? [own] : [];
      const next = rows.findIndex((after, place) => place > at && !after.consequence);
      const total = (next < 0 ? rows.length : next) - at;
      const text = `${count(total)} later ${total === 1 ? "step only repeats" : "steps only repeat"} this change`;
      const fold: Line = { ...own, mark: "…", a: text, b: "" };
      return open.has(at) ? [fold, own] : [fold];
    }
    const own: Line = {
      row: at,
      inside: null,
      mark: "=",
      a: `${count(row.count)} identical ${row.count === 1 ? "step" : "steps"}`,
      b: "",
      depth: 0,
    };
    if (!open.has(at)) return [own];
    const [from_a, from_b] = [stretch(left, row.a), stretch(right, row.b)];
    const most = Math.max(from_a.length, from_b.length);
    const inside = Array.from(
      { length: most },
      (_, place): Line => ({
        row: at,
        inside: place,
        mark: "=",
        a: from_a[place] ?? "",
        b: from_b[place] ?? "",
        depth: 1,
      }),
    );
    return [own, ...inside];
  });
}

function stretch(
  run: RunModel | null,
  ends: readonly string[] | string | null | undefined,
): string[] {
  if (!run || !ends || typeof ends === "string") return [];
  const from = run.ofShortId(ends[0]);
  const to = run.ofShortId(ends[1] ?? ends[0]);
  if (from === undefined || to === undefined) return [];
  const labels: string[] = [];
  for (let index = from; index <= to; index++)
    labels.push(`s${run.number(index)} ${run.type(index)} ${run.name(index)} ${run.label(index)}`);
  return labels;
}

function Pair({
  line,
  data,
  a,
  b,
  open,
}: {
  line: Line;
  data: RunsDiffData;
  a: string;
  b: string;
  open: boolean;
}) {
  const row = data.rows[line.row]!;
  const isFirst = line.row === data.first_row && line.inside === null;
  const withContent = line.inside === null && !isHeading(row);
  const indent = { paddingLeft: `${8 + Math.min(line.depth, 12) * 12}px` };
  if ((line.mark === "=" && line.inside === null) || line.mark === "…") {
    return (
      <button type="button" class="plain quiet folded" aria-expanded={open}>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span>
        {line.a}
      </button>
    );
  }
  return (
    <div class="pairline">
      <Half step={line.a} content={withContent ? row.a_content : null} style={indent} />
      <div class="between" title={line.mark === "=" ? "Identical" : markTitle(line.mark, a, b)}>
        {line.mark}
      </div>
      <Half step={line.b} content={withContent ? row.b_content : null} style={indent} />
      <div class="class">
        {row.mark !== "=" && line.inside === null && (!isHeading(row) || isFirst) && (
          <span class={`badge ${isFirst ? "bad" : "warn"}`}>
            {isFirst ? "First difference" : difference(row, a, b)}
          </span>
        )}
      </div>
    </div>
  );
}

/** One side of a row: the step, and below it what differs. */
function Half(props: {
  step: string;
  content: string | null | undefined;
  style: Record<string, string>;
}) {
  return (
    <div class="half trace" style={props.style}>
      <div class="cut">{oneLine(props.step, 200)}</div>
      {props.content && <div class="cut mono quiet">{oneLine(props.content, 200)}</div>}
    </div>
  );
}

function Heads({
  data,
  left,
  right,
  a,
  b,
}: {
  data: RunsDiffData;
  left: RunModel | null;
  right: RunModel | null;
  a: string;
  b: string;
}) {
  const [all, setAll] = useState(false);
  const { data: listed } = useAnswer<ListData>("list", { filter: `${a} ${b}`, limit: 2 });
  const titleOf = (id: string): string => {
    const run = listed?.runs.find((one) => one.short_id === id);
    return run ? taskOf(run) : "";
  };
  const deltas = data.deltas.filter((delta) => all || delta.a !== delta.b);
  useEffect(() => {
    document.title = `${a} vs ${b} · Vestige`;
  }, [a, b]);
  return (
    <section class="page-pad compare-head" aria-label="Both runs" tabIndex={0}>
      <h1 class="sr">
        Compare {a} with {b}
      </h1>
      <div class="heads">
        <Head run={left} id={a} title={titleOf(a)} label="Baseline" other={{ b }} />
        <Head run={right} id={b} title={titleOf(b)} label="Compared" other={{ a }} />
      </div>
      <div class="rowline wrap">
        {data.first_row === null ? (
          <span class="badge ok">No differences</span>
        ) : (
          <span>
            First difference: <b>{firstDifference(data)}</b>
          </span>
        )}
        <span class="quiet">
          {count(data.same)} identical {data.same === 1 ? "step" : "steps"}
        </span>
        {(data.rows_left_out ?? 0) > 0 && (
          <span class="badge warn">{count(data.rows_left_out)} rows not shown</span>
        )}
        <a class="button" href={href("compare", "", { a: b, b: a })}>
          Swap
        </a>
      </div>
      <details open={!NARROW.matches}>
        <summary>Totals</summary>
        <Deltas rows={deltas} a={a} b={b} />
        <button type="button" class="plain link" aria-pressed={all} onClick={() => setAll(!all)}>
          {all ? "Hide unchanged" : "Show unchanged"}
        </button>
      </details>
      {data.run.length > 0 && (
        <details>
          <summary>
            Run details <span class="quiet">{count(data.run.length)} differ</span>
          </summary>
          <Fields title="Run details" rows={data.run} />
        </details>
      )}
    </section>
  );
}

interface HeadProps {
  run: RunModel | null;
  id: string;
  /** The task; empty if the name of the run says it. */
  title: string;
  label: string;
  /** The run that stays when this one is exchanged. */
  other: Record<string, string>;
}

function Head({ run, id, title, label, other }: HeadProps) {
  return (
    <div class="head">
      <div class="rowline wrap">
        <span class="quiet">{label}</span>
        <a class="mono" href={href("run", id)}>
          {id}
        </a>
        {run && (
          <>
            <Status value={run.run.outcome} />
            <span class="quiet nowrap">{dateTime(run.run.started_at)}</span>
          </>
        )}
        <a class="link" href={href("compare", "", other)} aria-label={`Change ${id}`}>
          Change
        </a>
      </div>
      <b class="trace head-title">{oneLine(title || run?.run.name || "", 200)}</b>
    </div>
  );
}

/** Two columns where they fit, so that the steps below stay visible. */
function Deltas({ rows, a, b }: { rows: Delta[]; a: string; b: string }) {
  if (!rows.length) return <p class="quiet">No differences</p>;
  const half = rows.length > 4 ? Math.ceil(rows.length / 2) : rows.length;
  return (
    <div class="sums">
      <Sums rows={rows.slice(0, half)} a={a} b={b} />
      {half < rows.length && <Sums rows={rows.slice(half)} a={a} b={b} />}
    </div>
  );
}

const METRICS: Record<string, string> = {
  outcome: "Outcome",
  model_calls: "Model calls",
  tool_calls: "Tool calls",
  duration_ms: "Duration",
  cost_usd: "Cost",
  cache_read_tokens: "Cached tokens",
  cache_write_tokens: "Tokens written to cache",
  input_tokens: "Input tokens",
  output_tokens: "Output tokens",
  spans: "Spans",
  logs: "Log lines",
  errors: "Errors",
};

/** `tool:search` counts the calls of a tool. */
const metricTitle = (name: string): string =>
  METRICS[name] ??
  oneLine(name.startsWith("tool:") ? `${name.slice(5)} calls` : name.replaceAll("_", " "), 80);

function Sums({ rows, a, b }: { rows: Delta[]; a: string; b: string }) {
  return (
    <table class="plain deltas">
      <thead>
        <tr>
          <th>Metric</th>
          <th class="right">{a}</th>
          <th class="right">{b}</th>
          <th class="right">Change</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.name}>
            <td class="trace">{metricTitle(row.name)}</td>
            <td class="right">{formatMetric(row.name, row.a)}</td>
            <td class="right">{formatMetric(row.name, row.b)}</td>
            <td class="right quiet">{change(row)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function formatMetric(name: string, value: Delta["a"]): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return oneLine(outcomeWord(value), 40);
  if (name === "duration_ms") return durationMs(value);
  return name === "cost_usd" ? cost(value) : count(value);
}

function change({ a, b }: Delta): string {
  if (typeof a !== "number" || typeof b !== "number" || a === b) return "";
  if (!a) return "new";
  const share = ((b - a) / Math.abs(a)) * 100;
  return `${share > 0 ? "+" : ""}${Math.abs(share) < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

interface DetailProps {
  row: DiffRow;
  a: string;
  b: string;
  /** The run of a row that only one of them has. */
  run: RunModel | null;
  close: () => void;
}

function Detail({ row, a, b, run, close }: DetailProps) {
  const one = typeof row.a === "string" ? row.a : null;
  const other = typeof row.b === "string" ? row.b : null;
  const { data, error } = useAnswer<SpanDiffData>(
    "diff",
    one && other ? { a: one, b: other, ignore: ["ids", "times"] } : null,
  );
  const open = (short: string | null, run: string) =>
    short && (
      <a class="mono" href={href("run", run, { span: short.split(".")[1] ?? "" })}>
        {short}
      </a>
    );
  return (
    <>
      <div class="rowline pane-head">
        <h2 class="grow">{difference(row, a, b)}</h2>
        {open(one, a)} {open(other, b)}
        <button type="button" class="plain" aria-label="Close" onClick={close}>
          ✕
        </button>
      </div>
      {error && <Failed error={error} />}
      {one && other ? (
        data ? (
          <Differences data={data} resultFirst={row.class === "result"} />
        ) : (
          !error && <Loading />
        )
      ) : (
        <OneSide row={row} run={run} />
      )}
    </>
  );
}

/** A step of one run: a model call as a chat, other spans with arguments and result. */
function OneSide({ row, run }: { row: DiffRow; run: RunModel | null }) {
  const id = typeof row.a === "string" ? row.a : typeof row.b === "string" ? row.b : null;
  const { data, error } = useAnswer<SpanData>("span", id ? { id } : null);
  const index = run?.ofShortId(id);
  if (error) return <Failed error={error} />;
  if (id === null)
    return <p class="page-pad trace">{oneLine(row.a_text ?? row.b_text ?? "", 600)}</p>;
  if (!run || index === undefined || !data) return <Loading />;
  return run.type(index) === "llm" ? (
    <Messages run={run} index={index} steps={NO_STEPS} onlyNew={false} />
  ) : (
    <Values run={run} index={index} data={data} />
  );
}

const NO_STEPS = new StepIndex([]);
