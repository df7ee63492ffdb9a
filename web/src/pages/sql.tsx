/** SQL: read-only queries of the store, beside its tables. */

import "./sql.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, exported, get } from "../api";
import { useKeys } from "../keys";
import { Copy } from "../parts/copy";
import { count, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { VirtualList } from "../parts/virtual-list";
import { adjust, href, route } from "../router";
import type { SchemaData, SqlData } from "../types";
import { asApiError, useAnswer } from "../use-query";

const FIRST =
  "SELECT 'r' || id AS run, name, outcome, span_count FROM runs ORDER BY id DESC LIMIT 50";

export function Sql() {
  const initial = route.value.params.get("q") ?? "";
  const [text, setText] = useState(initial || FIRST);
  const [data, setData] = useState<SqlData | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);
  /** The query whose rows are shown: another may be typed meanwhile. */
  const shown = useRef("");
  useEffect(() => void (document.title = "SQL · Vestige"), []);
  const run = async (query: string, after: number | null = null): Promise<void> => {
    const mine = ++turn.current;
    setBusy(true);
    try {
      const found = await get<SqlData>("sql", { query, after });
      if (mine !== turn.current) return;
      shown.current = query;
      setData((before) =>
        after && before ? { ...found, rows: [...before.rows, ...found.rows] } : found,
      );
      setError(null);
    } catch (problem) {
      if (mine === turn.current) setError(asApiError(problem));
    } finally {
      if (mine === turn.current) setBusy(false);
    }
  };
  const start = (query: string): void => {
    setText(query);
    adjust({ q: query });
    void run(query);
  };
  useEffect(() => {
    if (initial) void run(initial);
  }, []);
  useKeys([{ key: "ctrl+enter", label: "Run the query", run: () => start(text) }]);
  if (exported) return <Empty>SQL is not available in exported files</Empty>;
  return (
    <div class="sql grow">
      <h1 class="sr">SQL</h1>
      <div class="column sql-main">
        <div class="sql-ask">
          <textarea
            aria-label="SQL query"
            class="mono"
            rows={5}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <div class="rowline wrap">
            <button type="button" onClick={() => start(text)} disabled={busy}>
              {busy ? "Running…" : "Run"} <kbd>Ctrl ↵</kbd>
            </button>
            <span class="quiet">Read-only · results are limited</span>
            <span class="grow" />
            {data && <Copy label="Copy as TSV" text={() => tsv(data)} />}
          </div>
        </div>
        {error && (
          <div class="page-pad">
            <Failed error={error} />
          </div>
        )}
        {data && !error && (
          <Result
            data={data}
            more={() => data.next !== null && void run(shown.current, data.next)}
          />
        )}
        {!data && !error && <Empty>Run a query to see results</Empty>}
      </div>
      <Schema onPick={start} />
    </div>
  );
}

const cell = (value: unknown): string =>
  value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);

const tsv = (data: SqlData): string =>
  [data.columns, ...data.rows]
    .map((row) => row.map((value) => cell(value).replace(/[\t\n\r]/g, " ")).join("\t"))
    .join("\n");

function Result({ data, more }: { data: SqlData; more: () => void }) {
  if (!data.rows.length) return <Empty>No rows.</Empty>;
  const columns = { gridTemplateColumns: `repeat(${data.columns.length}, minmax(110px, 1fr))` };
  return (
    <div class="sql-result column grow">
      <div
        class="sql-wide column grow"
        role="table"
        aria-label="Rows"
        style={{ minWidth: `${data.columns.length * 120}px` }}
      >
        <div role="rowgroup" class="sql-head">
          <div role="row" class="sql-row" style={columns}>
            {data.columns.map((name, at) => (
              <span key={at} role="columnheader" class="cut">
                {oneLine(name, 60)}
              </span>
            ))}
          </div>
        </div>
        <VirtualList
          role="rowgroup"
          label="Rows"
          count={data.rows.length}
          height={26}
          rowProps={() => ({ role: "row" })}
          row={(at) => (
            <div class="sql-row" role="presentation" style={columns}>
              {data.rows[at]!.map((value, place) => (
                <Cell key={place} value={value} />
              ))}
            </div>
          )}
        />
      </div>
      <div class="list-foot rowline">
        <span class="quiet">
          {count(data.rows.length)} {data.rows.length === 1 ? "row" : "rows"}
          {data.next !== null ? " so far" : ""}
        </span>
        {data.next !== null && (
          <button type="button" onClick={more}>
            More
          </button>
        )}
      </div>
    </div>
  );
}

/** A run's or a span's short id is a link to it. */
function Cell({ value }: { value: unknown }) {
  const text = cell(value);
  const id = /^(r\d+)(?:\.(s\d+))?$/.exec(text);
  return (
    <span role="cell" class="cut trace" title={text.length > 20 ? oneLine(text, 400) : undefined}>
      {id ? (
        <a href={href("run", id[1]!, id[2] ? { view: "tree", span: id[2] } : {})}>{text}</a>
      ) : value === null ? (
        <span class="quiet">null</span>
      ) : (
        oneLine(text, 300)
      )}
    </span>
  );
}

function Schema({ onPick }: { onPick: (query: string) => void }) {
  const { data, error } = useAnswer<SchemaData>("schema", {});
  if (error)
    return (
      <aside class="sql-side">
        <Failed error={error} />
      </aside>
    );
  if (!data)
    return (
      <aside class="sql-side">
        <Loading />
      </aside>
    );
  return (
    <aside class="sql-side scroll" aria-label="Tables and examples" tabIndex={0}>
      <h2>Examples</h2>
      {data.examples.map((query) => (
        <button
          key={query}
          type="button"
          class="plain sql-example mono"
          onClick={() => onPick(query)}
        >
          {query}
        </button>
      ))}
      <h2>Tables</h2>
      {[...data.tables, ...data.views].map((table) => (
        <details key={table.name}>
          <summary>
            <span class="mono">{table.name}</span>{" "}
            <span class="quiet">{table.columns.length} columns</span>
          </summary>
          <pre class="trace">{table.sql}</pre>
        </details>
      ))}
    </aside>
  );
}
