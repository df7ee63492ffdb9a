/** Notes of people on a run or a span: read, and written where there is a server. */

import { useState } from "preact/hooks";
import { asApiError, useAnswer } from "../answers";
import { exported, post } from "../api";
import type { NotesData } from "../types";
import { moment, visible } from "./format";

/** `run`: its short id; `span`: of one span alone. */
export function Notes({ run, span = null }: { run: string; span?: string | null }) {
  const { data, again } = useAnswer<NotesData>("notes", { id: run });
  const id = span ?? run;
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const [open, setOpen] = useState(false);
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await post("notes", { id, text });
      setText("");
      setProblem("");
      setOpen(false);
      again();
    } catch (error) {
      setProblem(asApiError(error).message);
    }
  };
  const notes = (data?.notes ?? []).filter((note) => span === null || note.span === span);
  if (exported && !notes.length) return null;
  return (
    <section class="notes" aria-label="Notes">
      {notes.map((note) => (
        <div class="note" key={note.id}>
          <div class="quiet">{note.author ? `${visible(note.author)} · ` : ""}{moment(note.created_at)}{note.span && !span ? ` · ${note.span}` : ""}</div>
          <div class="trace">{visible(note.text)}</div>
        </div>
      ))}
      {!exported && !open && <button type="button" class="plain link" onClick={() => setOpen(true)}>Add a note</button>}
      {open && (
        <form class="rowline" onSubmit={(event) => void send(event)}>
          <textarea class="grow" rows={2} aria-label={`A note on ${id}`} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          <button type="submit" disabled={!text.trim()}>Keep</button>
          <button type="button" class="plain" onClick={() => setOpen(false)}>Cancel</button>
        </form>
      )}
      {problem && <div class="notice bad" role="alert">{problem}</div>}
    </section>
  );
}
