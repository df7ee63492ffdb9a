/** Two runs aligned: the first divergence first, equal stretches folded, both sides open. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useAnswer } from "../answers";
import { useKeys } from "../keys";
import { useRun } from "../loaded";
import type { RunModel } from "../model";
import { Status } from "../parts/badges";
import { count, cost, durationMs, moment, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/state";
import { Split } from "../parts/split";
import { VirtualList } from "../parts/virtual";
import { go, href, route } from "../state";
import type { Delta, DiffRow, RunsDiffData, SpanDiffData } from "../types";
import { Differences, Fields } from "../views/differences";
import "./compare.css";

export function Compare() {
  const a = route.value.params.get("a") ?? "";
  const b = route.value.params.get("b") ?? "";
  const { data, error, loading } = useAnswer<RunsDiffData>("diff", a && b ? { a, b } : null);
  if (!a || !b) return <Choose a={a} b={b} />;
  if (error) return <div class="page-pad"><Failed error={error} /></div>;
  if (loading || !data) return <Loading what="both runs" />;
  return <Compared data={data} a={a} b={b} />;
}

function Choose({ a, b }: { a: string; b: string }) {
  const [left, setLeft] = useState(a);
  const [right, setRight] = useState(b);
  return (
    <form
      class="page-pad rowline wrap"
      onSubmit={(event) => {
        event.preventDefault();
        go(href("compare", "", { a: left, b: right }));
      }}
    >
      <label>The one <input type="text" value={left} placeholder="r6" onInput={(event) => setLeft(event.currentTarget.value)} /></label>
      <label>The other <input type="text" value={right} placeholder="r7" onInput={(event) => setRight(event.currentTarget.value)} /></label>
      <button type="submit" disabled={!left || !right}>Compare</button>
    </form>
  );
}

function Compared({ data, a, b }: { data: RunsDiffData; a: string; b: string }) {
  const left = useRun(a).run;
  const right = useRun(b).run;
  const [picked, pick] = useState<number | null>(data.first_row);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const lines = useMemo(() => unfolded(data.rows, open, left, right), [data, open, left, right]);
  const at = lines.findIndex((line) => line.row === picked && line.inside === null);
  const changed = useMemo(() => data.rows.flatMap((row, index) => (row.mark === "=" ? [] : [index])), [data]);
  const step = (by: 1 | -1): void => {
    const now = changed.indexOf(picked ?? -1);
    const next = changed[Math.min(Math.max(now + by, 0), changed.length - 1)];
    if (next !== undefined) pick(next);
  };
  useKeys([
    { key: "j", say: "next difference", run: () => step(1) },
    { key: "k", say: "difference before", run: () => step(-1) },
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
        <Empty>Nothing to align: neither run has steps.</Empty>
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
              class: `pair mark${MARKS[line.mark] ?? ""} ${line.row === picked && line.inside === null ? "chosen" : ""}`,
              onClick: () => (line.mark === "=" && line.inside === null ? toggle(line.row) : pick(line.row)),
            };
          }}
          row={(index) => <Pair line={lines[index]!} data={data} open={open.has(lines[index]!.row)} />}
        />
      )}
    </>
  );
  return <Split name="compare" label="What differs" first={first} second={row && row.mark !== "=" ? <Detail key={picked} row={row} a={a} b={b} close={() => pick(null)} /> : null} />;
}

const MARKS: Record<string, string> = { "=": "-same", "~": "-changed", "+": "-added", "-": "-gone" };
const SAYS: Record<string, string> = { "~": "differs", "+": "only in the second", "-": "only in the first" };

interface Line {
  row: number;
  /** Of an opened stretch: the place inside it. */
  inside: number | null;
  mark: string;
  a: string;
  b: string;
  depth: number;
}

/** Rows as they are shown: an opened stretch of equal steps has a line for each. */
function unfolded(rows: DiffRow[], open: ReadonlySet<number>, left: RunModel | null, right: RunModel | null): Line[] {
  return rows.flatMap((row, at): Line[] => {
    if (row.mark !== "=") return [{ row: at, inside: null, mark: row.mark, a: row.a_text ?? "", b: row.b_text ?? "", depth: row.depth ?? 0 }];
    const own: Line = { row: at, inside: null, mark: "=", a: `${count(row.count)} equal ${row.count === 1 ? "step" : "steps"}`, b: "", depth: 0 };
    if (!open.has(at)) return [own];
    const [from_a, from_b] = [stretch(left, row.a), stretch(right, row.b)];
    const most = Math.max(from_a.length, from_b.length);
    const inside = Array.from({ length: most }, (_, place): Line => ({
      row: at, inside: place, mark: "=", a: from_a[place] ?? "", b: from_b[place] ?? "", depth: 1,
    }));
    return [own, ...inside];
  });
}

function stretch(run: RunModel | null, ends: readonly string[] | string | null | undefined): string[] {
  if (!run || !ends || typeof ends === "string") return [];
  const from = run.ofShortId(ends[0]);
  const to = run.ofShortId(ends[1] ?? ends[0]);
  if (from === undefined || to === undefined) return [];
  const said: string[] = [];
  for (let index = from; index <= to; index++) said.push(`s${run.number(index)} ${run.type(index)} ${run.name(index)} ${run.label(index)}`);
  return said;
}

function Pair({ line, data, open }: { line: Line; data: RunsDiffData; open: boolean }) {
  const row = data.rows[line.row]!;
  const isFirst = line.row === data.first_row && line.inside === null;
  const indent = { paddingLeft: `${8 + Math.min(line.depth, 12) * 12}px` };
  if (line.mark === "=" && line.inside === null) {
    return <button type="button" class="plain quiet folded" aria-expanded={open}><span aria-hidden="true">{open ? "▾" : "▸"}</span>{line.a}</button>;
  }
  return (
    <div class="pairline">
      <div class="half cut trace" style={indent}>{oneLine(line.a, 200)}</div>
      <div class="between" title={SAYS[line.mark] ?? "the same"}>{line.mark}</div>
      <div class="half cut trace" style={indent}>{oneLine(line.b, 200)}</div>
      <div class="class">
        {row.class && line.inside === null && <span class={`badge ${isFirst ? "bad" : "warn"}`}>{isFirst ? "first: " : ""}{row.class}</span>}
      </div>
    </div>
  );
}

function Heads({ data, left, right, a, b }: { data: RunsDiffData; left: RunModel | null; right: RunModel | null; a: string; b: string }) {
  const [all, setAll] = useState(false);
  const deltas = data.deltas.filter((delta) => all || delta.a !== delta.b);
  useEffect(() => {
    document.title = `${a} against ${b} · Vestige`;
  }, [a, b]);
  return (
    <section class="verdict" aria-label="Both runs" tabIndex={0}>
      <div class="heads">
        <Head run={left} id={a} />
        <Head run={right} id={b} />
      </div>
      <div class="rowline wrap">
        {data.first_row === null ? <span class="badge ok">✓ no step differs</span> : (
          <span>The first divergence is <b>{data.rows[data.first_row]?.class ?? "a step"}</b>: {oneLine(data.rows[data.first_row]?.a_text ?? data.rows[data.first_row]?.b_text ?? "", 120)}</span>
        )}
        <span class="quiet">{count(data.same)} steps are equal</span>
        {(data.rows_left_out ?? 0) > 0 && <span class="badge warn">{count(data.rows_left_out)} rows left out</span>}
        <a class="button" href={href("compare", "", { a: b, b: a })}>Swap</a>
      </div>
      <details open>
        <summary>What adds up differently</summary>
        <Deltas rows={deltas} a={a} b={b} />
        <button type="button" class="plain link" aria-pressed={all} onClick={() => setAll(!all)}>{all ? "Only what differs" : "What is equal too"}</button>
        {data.run.length > 0 && <Fields title="Of the run" rows={data.run} />}
      </details>
    </section>
  );
}

function Head({ run, id }: { run: RunModel | null; id: string }) {
  return (
    <div class="rowline wrap head">
      <a class="mono" href={href("run", id)}>{id}</a>
      {run && (
        <>
          <Status value={run.run.outcome} />
          <b class="trace cut">{oneLine(run.run.name, 60)}</b>
          <span class="quiet">{moment(run.run.started_at).slice(0, 19)}</span>
        </>
      )}
    </div>
  );
}

/** In two columns where there is room, so that the steps below stay in sight. */
function Deltas({ rows, a, b }: { rows: Delta[]; a: string; b: string }) {
  if (!rows.length) return <p class="quiet">Nothing.</p>;
  const half = rows.length > 4 ? Math.ceil(rows.length / 2) : rows.length;
  return (
    <div class="sums">
      <Sums rows={rows.slice(0, half)} a={a} b={b} />
      {half < rows.length && <Sums rows={rows.slice(half)} a={a} b={b} />}
    </div>
  );
}

function Sums({ rows, a, b }: { rows: Delta[]; a: string; b: string }) {
  return (
    <table class="plain deltas">
      <thead><tr><th>Sum</th><th class="right">{a}</th><th class="right">{b}</th><th class="right">Change</th></tr></thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.name}>
            <td class="trace">{oneLine(row.name.replaceAll("_", " "), 80)}</td>
            <td class="right">{said(row.name, row.a)}</td>
            <td class="right">{said(row.name, row.b)}</td>
            <td class="right quiet">{change(row)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function said(name: string, value: Delta["a"]): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return oneLine(value, 40);
  if (name === "duration_ms") return durationMs(value);
  return name === "cost_usd" ? cost(value) : count(value);
}

function change({ a, b }: Delta): string {
  if (typeof a !== "number" || typeof b !== "number" || a === b) return "";
  if (!a) return "new";
  const share = ((b - a) / Math.abs(a)) * 100;
  return `${share > 0 ? "+" : ""}${Math.abs(share) < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

function Detail({ row, a, b, close }: { row: DiffRow; a: string; b: string; close: () => void }) {
  const one = typeof row.a === "string" ? row.a : null;
  const other = typeof row.b === "string" ? row.b : null;
  const { data, error } = useAnswer<SpanDiffData>("diff", one && other ? { a: one, b: other } : null);
  const open = (short: string | null, run: string) => short && (
    <a class="mono" href={href("run", run, { span: short.split(".")[1] ?? "" })}>{short}</a>
  );
  return (
    <>
      <div class="rowline pane-head">
        <h2 class="grow">{SAYS[row.mark]}{row.class ? `: ${row.class}` : ""}</h2>
        {open(one, a)} {open(other, b)}
        <button type="button" class="plain" aria-label="Close the pane" onClick={close}>✕</button>
      </div>
      {error && <Failed error={error} />}
      {one && other ? (data ? <Differences data={data} /> : !error && <Loading />) : (
        <div class="page-pad"><p class="trace">{oneLine(row.a_text ?? row.b_text ?? "", 600)}</p></div>
      )}
    </>
  );
}
