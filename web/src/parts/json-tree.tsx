/**
 * JSON as a tree: values fold, paths can be copied, JSON inside strings is opened. A list of
 * records with the same keys is a table.
 */

import { useState } from "preact/hooks";
import { copyText } from "./copy";
import { count, visible } from "./format";
import { pathOf } from "./json-path";
import { CodeBlock } from "./pieces";
import { ExactNumber, parseJson } from "./text-kind";

/** Children that are shown at first. */
const SHOWN = 60;
/** Levels that are open at first, while they have few children. */
const OPEN_DEPTH = 2;
const OPEN_CHILDREN = 20;
const DEPTH_MAX = 40;
const TEXT_SHOWN = 1_500;

export function JsonTree({ value, label }: { value: object; label: string }) {
  return (
    <div class="json-tree" role="group" aria-label={label}>
      {tableOf(value) ? (
        <RecordTable value={value} />
      ) : (
        <Children value={value} path="$" depth={0} />
      )}
    </div>
  );
}

function entriesOf(value: object): [string | number, unknown][] {
  return Array.isArray(value) ? value.map((each, at) => [at, each]) : Object.entries(value);
}

function Children({ value, path, depth }: { value: object; path: string; depth: number }) {
  const [most, setMost] = useState(SHOWN);
  const entries = entriesOf(value);
  if (!entries.length) return <span class="quiet">{Array.isArray(value) ? "[]" : "{}"}</span>;
  return (
    <>
      {entries.slice(0, most).map(([key, each]) => (
        <Node key={key} name={key} value={each} path={pathOf(path, key)} depth={depth} />
      ))}
      {entries.length > most && (
        <button type="button" class="plain link" onClick={() => setMost(most * 10)}>
          Show {count(Math.min(entries.length - most, most * 9))} more
        </button>
      )}
    </>
  );
}

interface NodeProps {
  name: string | number;
  value: unknown;
  path: string;
  depth: number;
}

function Node({ name, value, path, depth }: NodeProps) {
  const inner = typeof value === "string" ? parseJson(value) : value;
  const isTree = typeof inner === "object" && inner !== null && !(inner instanceof ExactNumber);
  const size = isTree ? entriesOf(inner).length : 0;
  const [open, setOpen] = useState(depth < OPEN_DEPTH && size <= OPEN_CHILDREN);
  if (!isTree || !size) {
    return (
      <div class="json-row">
        <Key name={name} path={path} />
        <Leaf value={value} />
      </div>
    );
  }
  return (
    <div class="json-node">
      <div class="json-row">
        <button
          type="button"
          class="plain json-fold"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          <span aria-hidden="true">{open ? "▾" : "▸"}</span>
          <span class="sr">{visible(String(name))}</span>
        </button>
        <Key name={name} path={path} />
        <span class="quiet">
          {Array.isArray(inner) ? `[${count(size)}]` : `{${count(size)}}`}
          {typeof value === "string" && " JSON in a string"}
        </span>
      </div>
      {open && depth < DEPTH_MAX && (
        <div class="json-inside">
          {tableOf(inner) ? (
            <RecordTable value={inner} />
          ) : (
            <Children value={inner} path={path} depth={depth + 1} />
          )}
        </div>
      )}
    </div>
  );
}

/** The name of a value; pressing it copies the path. */
function Key({ name, path }: { name: string | number; path: string }) {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    void copyText(path).then(() => setCopied(true));
    setTimeout(() => setCopied(false), 1_200);
  };
  return (
    <button
      type="button"
      class="plain json-key"
      title={`Copy path ${visible(path)}`}
      onClick={copy}
    >
      {visible(String(name))}
      <span aria-live="polite" class="quiet">
        {copied ? " copied" : ""}
      </span>
    </button>
  );
}

function Leaf({ value }: { value: unknown }) {
  const [open, setOpen] = useState(false);
  if (typeof value !== "string") {
    const text = value instanceof ExactNumber ? value.source : JSON.stringify(value);
    return (
      <span class={`hl-${value === null || typeof value === "boolean" ? "keyword" : "number"}`}>
        {text}
      </span>
    );
  }
  if (!value.includes("\n") && value.length < 200) {
    return <span class="hl-string trace">{visible(JSON.stringify(value))}</span>;
  }
  const shown = open ? value : value.slice(0, TEXT_SHOWN);
  return (
    <div class="json-text">
      <CodeBlock code={shown} />
      {value.length > TEXT_SHOWN && (
        <button
          type="button"
          class="plain link"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          {open ? "Show less" : `Show all ${count(value.length)} characters`}
        </button>
      )}
    </div>
  );
}

const TABLE_COLUMNS = 10;
const CELL = 160;

/** The columns of a list of flat records; null if it is none. */
export function tableOf(value: object): string[] | null {
  if (!Array.isArray(value) || value.length < 2) return null;
  const columns = new Set<string>();
  for (const row of value.slice(0, 200) as unknown[]) {
    if (typeof row !== "object" || row === null || Array.isArray(row)) return null;
    for (const [key, cell] of Object.entries(row)) {
      if (typeof cell === "object" && cell !== null && !(cell instanceof ExactNumber)) return null;
      if (typeof cell === "string" && (cell.length > CELL || cell.includes("\n"))) return null;
      columns.add(key);
    }
  }
  return columns.size && columns.size <= TABLE_COLUMNS ? [...columns] : null;
}

function RecordTable({ value }: { value: object }) {
  const [most, setMost] = useState(SHOWN);
  const rows = value as Record<string, unknown>[];
  const columns = tableOf(value) ?? [];
  return (
    <div class="scroll json-table" role="region" aria-label="Table" tabIndex={0}>
      <table class="plain">
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name}>{visible(name)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, most).map((row, at) => (
            <tr key={at}>
              {columns.map((name) => (
                <td key={name} class={`trace ${typeof row[name] === "number" ? "right" : ""}`}>
                  {cellText(row[name])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > most && (
        <button type="button" class="plain link" onClick={() => setMost(most * 10)}>
          Show more of {count(rows.length)} rows
        </button>
      )}
    </div>
  );
}

function cellText(value: unknown): string {
  if (value === undefined) return "";
  if (value instanceof ExactNumber) return value.source;
  return visible(typeof value === "string" ? value : String(value));
}
