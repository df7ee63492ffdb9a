/** Text of any size with line numbers: long lines are broken into pieces, only visible ones exist. */

import { useMemo } from "preact/hooks";
import { searched } from "../router";
import { type CodeLine, findLine, linesOf } from "./code-lines";
import { visible } from "./format";
import { VirtualList } from "./virtual-list";

const PLAIN_MAX = 400;

function Line({ line }: { line: CodeLine }) {
  return (
    <div class={`line ${line.mood ?? ""}`}>
      <span class="n" aria-hidden="true">
        {line.number ?? (line.mood ? "" : "↳")}
      </span>
      <span class="t" dir="auto">
        {visible(line.text) || " "}
      </span>
    </div>
  );
}

export function CodeLines({
  lines,
  label,
  class: more = "",
}: {
  lines: CodeLine[];
  label: string;
  class?: string;
}) {
  const words = searched.value;
  const hit = useMemo(() => findLine(lines, words), [lines, words]);
  if (lines.length <= PLAIN_MAX) {
    return (
      <div class={`code scroll ${more}`} role="region" aria-label={label} tabIndex={0}>
        {lines.map((line, at) => (
          <Line key={at} line={line} />
        ))}
      </div>
    );
  }
  return (
    <VirtualList
      class={`code ${more || "grow"}`}
      label={label}
      count={lines.length}
      height={18}
      measured
      active={hit}
      centre
      row={(at) => <Line line={lines[at]!} />}
    />
  );
}

export function Code({
  text,
  label,
  class: more,
}: {
  text: string;
  label: string;
  class?: string;
}) {
  const lines = useMemo(() => linesOf(text), [text]);
  return <CodeLines lines={lines} label={label} {...(more ? { class: more } : {})} />;
}
