/** The files that a tool call edited, each as a coloured diff. */

import type { FileEdit } from "../types";
import { count, oneLine } from "./format";
import { DiffBlock } from "./pieces";

/** Files of one call that are unfolded at first. */
const OPEN_MAX = 5;

export function Edits({ edits }: { edits: readonly FileEdit[] | undefined }) {
  if (!edits?.length) return null;
  return (
    <>
      {edits.map((edit, at) => (
        <details class="edit" key={`${at} ${edit.path}`} open={at < OPEN_MAX}>
          <summary>
            {edit.kind} <code class="trace">{oneLine(edit.path, 200)}</code>{" "}
            <span class="diff-add">+{count(edit.added)}</span>{" "}
            <span class="diff-del">−{count(edit.removed)}</span>
          </summary>
          <DiffBlock text={edit.diff} />
        </details>
      ))}
    </>
  );
}
