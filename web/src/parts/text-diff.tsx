/** Two texts in one column: every change, unchanged stretches folded to one line that opens. */

import { useMemo, useState } from "preact/hooks";
import { count, visible } from "./format";
import { type Change, findChanges } from "./text-changes";

/** Lines of changes that are shown at first. */
const CHANGES_MAX = 400;

interface Props {
  a: string;
  b: string;
  label: string;
}

export function TextDiff({ a, b, label }: Props) {
  const changes = useMemo(() => findChanges(a, b), [a, b]);
  const [all, setAll] = useState(false);
  if (!changes) return <p class="notice">The texts are too different to compare line by line.</p>;
  const shown = all ? changes : changes.slice(0, CHANGES_MAX);
  return (
    <>
      <div class="text-diff code-block trace" role="group" aria-label={label}>
        {shown.map((change, at) => (
          <ChangeView key={at} change={change} />
        ))}
      </div>
      {shown.length < changes.length && (
        <button type="button" class="plain link" onClick={() => setAll(true)}>
          Show {count(changes.length - shown.length)} more changes
        </button>
      )}
    </>
  );
}

function ChangeView({ change }: { change: Change }) {
  switch (change.kind) {
    case "same":
      return <div class="diff-line">{visible(change.lines.join("\n")) || " "}</div>;
    case "fold":
      return <Folded lines={change.lines} />;
    case "words":
      return (
        <div class="diff-line diff-words">
          {change.pieces.map((piece, at) =>
            piece.mood === "del" ? (
              <del key={at}>{visible(piece.text)}</del>
            ) : piece.mood === "add" ? (
              <ins key={at}>{visible(piece.text)}</ins>
            ) : (
              visible(piece.text)
            ),
          )}
        </div>
      );
    default:
      return (
        <div class={`diff-line diff-${change.kind}`}>
          <span aria-hidden="true">{change.kind === "add" ? "+ " : "− "}</span>
          <span class="sr">{change.kind === "add" ? "added: " : "removed: "}</span>
          {visible(change.text)}
        </div>
      );
  }
}

function Folded({ lines }: { lines: string[] }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="plain quiet diff-fold"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        <span aria-hidden="true">{open ? "▾" : "▸"}</span> {count(lines.length)} unchanged lines
      </button>
      {open && <div class="diff-line">{visible(lines.join("\n"))}</div>}
    </>
  );
}
