/** Captured files as a tree with a preview, at a chosen moment of the run. */

import { useMemo, useState } from "preact/hooks";
import { exported } from "../api";
import { bytes, count, offset, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { openSpan } from "../router";
import type { FileRow, FilesData } from "../types";
import { useAnswer } from "../use-query";
import { FilePreview } from "./file-preview";
import { useRowKeys } from "./selection";
import "./split.css";
import type { ViewProps } from "./view-props";

const NARROW = matchMedia("(max-width: 820px)");

interface Line {
  depth: number;
  name: string;
  path: string;
  /** Null: a folder. */
  file: FileRow | null;
}

export default function Files({ run }: ViewProps) {
  const [at, setAt] = useState<number | null>(null);
  const { data, error, again } = useAnswer<FilesData>(
    "files",
    { id: run.run.short_id, at: at === null ? null : (at / 1e6).toFixed(6) },
    run.next,
  );
  const [picked, pick] = useState<string | null>(null);
  const lines = useMemo(() => (data ? laidOut(data.files) : []), [data]);
  useRowKeys(
    "file",
    lines.filter((line) => line.file).map((line) => line.path),
    picked,
    pick,
  );
  if (error) return <Failed error={error} again={again} />;
  if (!data) return <Loading what="the files" />;
  if (!data.files.length && at === null) return <Empty>No files were captured in this run.</Empty>;
  const first = NARROW.matches ? undefined : lines.find((line) => line.file)?.path;
  const shownPath = picked ?? first;
  const file = data.files.find((one) => one.path === shownPath);
  return (
    <div class="column grow">
      <div class="rowline wrap viewtools">
        <span class="quiet">
          {count(data.files.length)} {data.files.length === 1 ? "file" : "files"}
        </span>
        {!exported && (
          <label class="rowline grow">
            <span class="quiet nowrap">At: {at === null ? "end of run" : offset(at)}</span>
            <input
              class="grow"
              type="range"
              aria-label="Moment of the run"
              min={0}
              max={run.length_us}
              step={Math.max(1, Math.round(run.length_us / 500))}
              value={at ?? run.length_us}
              onChange={(event) =>
                setAt(
                  Number(event.currentTarget.value) >= run.length_us
                    ? null
                    : Number(event.currentTarget.value),
                )
              }
            />
          </label>
        )}
      </div>
      <div class="two-columns grow">
        <ul class="side scroll" aria-label="Files" tabIndex={0}>
          {lines.map((line) => (
            <li
              key={line.path + (line.file ? "" : "/")}
              style={{ paddingLeft: `${line.depth * 14}px` }}
            >
              {line.file ? (
                <button
                  type="button"
                  class="plain cut"
                  aria-pressed={line.path === shownPath}
                  onClick={() => pick(line.path)}
                >
                  <span class="trace">{oneLine(line.name, 80)}</span>{" "}
                  <span class="quiet">{bytes(line.file.size_bytes)}</span>
                  {line.file.versions > 1 && <span class="quiet"> × {line.file.versions}</span>}
                </button>
              ) : (
                <span class="quiet trace folder">{oneLine(line.name, 80)}/</span>
              )}
            </li>
          ))}
        </ul>
        <div class="column grow">
          {!file ? (
            <Empty>Select a file</Empty>
          ) : (
            <>
              <div class="rowline wrap viewtools">
                <b class="trace">{oneLine(file.path, 200)}</b>
                <span class="quiet">{offset(file.at_us)}</span>
                {file.sha256 && (
                  <span class="quiet mono" title={file.sha256}>
                    sha256 {file.sha256.slice(0, 12)}…
                  </span>
                )}
                <button
                  type="button"
                  class="plain"
                  onClick={() => openSpan(Number(/s(\d+)$/.exec(file.span)?.[1] ?? 0))}
                >
                  {file.span}
                </button>
              </div>
              {file.cut && <div class="notice warn">{oneLine(file.cut, 200)}</div>}
              <FilePreview key={file.span} file={file} />
            </>
          )}
        </div>
      </div>
    </div>
  );
}

/** Return folders and files in display order, sorted by name. */
function laidOut(files: FileRow[]): Line[] {
  const lines: Line[] = [];
  let open: string[] = [];
  for (const file of [...files].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    const steps = file.path.split("/");
    const name = steps.pop() ?? file.path;
    let same = 0;
    while (same < steps.length && same < open.length && steps[same] === open[same]) same++;
    for (let depth = same; depth < steps.length; depth++) {
      lines.push({
        depth,
        name: steps[depth]!,
        path: steps.slice(0, depth + 1).join("/"),
        file: null,
      });
    }
    open = steps;
    lines.push({ depth: steps.length, name, path: file.path, file });
  }
  return lines;
}
