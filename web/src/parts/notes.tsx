/** Notes of people on a run or a span: read, and written where there is a server. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { exported, send } from "../api";
import type { NotesData } from "../types";
import { asApiError, useAnswer } from "../use-query";
import { count, moment, visible } from "./format";
import { RenderedText } from "./rendered-text";

type Note = NotesData["notes"][number];

/** Tags that a note can start with; any other `#word` is a tag, too. */
const TAGS = ["#culprit", "#flaky", "#wontfix", "#fixed"];
/** Counts the notes that were written on this page, so that every list of notes is read again. */
const written = signal(0);

/** The notes of a run by span: `r7.s12`; under the run's own id, those on the run. */
export function useNotes(run: string): Map<string, Note[]> {
  const { data } = useAnswer<NotesData>("notes", { id: run }, String(written.value));
  return useMemo(() => {
    const found = new Map<string, Note[]>();
    for (const note of data?.notes ?? []) {
      const key = note.span ?? run;
      found.set(key, [...(found.get(key) ?? []), note]);
    }
    return found;
  }, [data]);
}

/** A mark on the row of a span that has notes. */
export function NoteMark({ notes }: { notes: Note[] | undefined }) {
  if (!notes?.length) return null;
  const text = notes.map((note) => visible(note.text)).join("\n");
  return (
    <span class="note-mark" title={text}>
      ✎<span class="sr">{notes.length === 1 ? "1 note" : `${notes.length} notes`}</span>
    </span>
  );
}

/** A link from the head of a run to the notes on it: of people, and reports of `vestige explain`. */
export function RunNotes({ run, open }: { run: string; open: () => void }) {
  const notes = useNotes(run);
  const times = [...notes.values()].reduce((sum, each) => sum + each.length, 0);
  if (!times) return null;
  return (
    <button type="button" class="plain link note-mark" onClick={open}>
      ✎ {count(times)} {times === 1 ? "note" : "notes"}
    </button>
  );
}

/** The text of a note with its tags as badges. */
function NoteText({ text }: { text: string }) {
  return (
    <>
      {visible(text)
        .split(/(#[\p{L}\p{N}_-]+)/u)
        .map((part, at) =>
          part.startsWith("#") ? (
            <span class="badge" key={at}>
              {part}
            </span>
          ) : (
            part
          ),
        )}
    </>
  );
}

interface NotesProps {
  run: string;
  /** Only the notes of this span. */
  span?: string | null;
  /** Set where a button elsewhere opens the form; `onDone` says that it was closed. */
  adding?: boolean;
  onDone?: () => void;
}

export function Notes({ run, span = null, adding, onDone }: NotesProps) {
  const { data, again } = useAnswer<NotesData>("notes", { id: run }, String(written.value));
  const id = span ?? run;
  const [problem, setProblem] = useState("");
  const [opened, setOpened] = useState(false);
  const [edited, setEdited] = useState<string | null>(null);
  const open = adding ?? opened;
  const setOpen = (to: boolean): void => {
    setOpened(to);
    if (!to) onDone?.();
  };
  const change = async (method: string, path: string, body?: unknown): Promise<boolean> => {
    try {
      await send(method, path, body);
      setProblem("");
      written.value++;
      again();
      return true;
    } catch (error) {
      setProblem(asApiError(error).message);
      return false;
    }
  };
  const pathOf = (note: Note): string => `notes/${note.id}?id=${encodeURIComponent(run)}`;
  const notes = (data?.notes ?? []).filter((note) => span === null || note.span === span);
  if ((exported || adding === false) && !notes.length) return null;
  return (
    <section class="notes" aria-label="Notes">
      {notes.map((note) => (
        <div class="note" key={note.id}>
          <div class="quiet rowline">
            <span class="grow">
              {note.author ? visible(note.author) : "anonymous"} · {moment(note.created_at)}
              {note.span && !span ? ` · ${note.span}` : ""}
            </span>
            {!exported && edited !== note.id && (
              <NoteActions
                edit={() => setEdited(note.id)}
                remove={() => void change("DELETE", pathOf(note))}
              />
            )}
          </div>
          {edited === note.id ? (
            <NoteForm
              label="Text of the note"
              text={note.text}
              save={async (text) => {
                if (await change("PATCH", pathOf(note), { text })) setEdited(null);
              }}
              cancel={() => setEdited(null)}
            />
          ) : note.text.trim().includes("\n") ? (
            <RenderedText text={note.text} />
          ) : (
            <div class="trace">
              <NoteText text={note.text} />
            </div>
          )}
        </div>
      ))}
      {!exported && adding === undefined && !open && (
        <button type="button" class="plain link" onClick={() => setOpen(true)}>
          Add a note
        </button>
      )}
      {open && (
        <NoteForm
          label={`Note on ${id.split(".").pop()}`}
          save={async (text) => {
            if (await change("POST", "notes", { id, text })) setOpen(false);
          }}
          cancel={() => setOpen(false)}
        />
      )}
      {problem && (
        <div class="notice bad" role="alert">
          {problem}
        </div>
      )}
    </section>
  );
}

/** Edit and delete; the second press deletes. */
function NoteActions({ edit, remove }: { edit: () => void; remove: () => void }) {
  const [asked, setAsked] = useState(false);
  return (
    <>
      <button type="button" class="plain link" onClick={edit}>
        Edit
      </button>
      <button
        type="button"
        class="plain link"
        onClick={() => (asked ? remove() : setAsked(true))}
        onBlur={() => setAsked(false)}
      >
        {asked ? "Delete this note?" : "Delete"}
      </button>
    </>
  );
}

interface NoteFormProps {
  label: string;
  text?: string;
  save: (text: string) => Promise<void>;
  cancel: () => void;
}

function NoteForm({ label, text: before = "", save, cancel }: NoteFormProps) {
  const [text, setText] = useState(before);
  const field = useRef<HTMLTextAreaElement>(null);
  // Before the next event: keys typed right after the click belong to the note, not to shortcuts.
  useLayoutEffect(() => field.current?.focus(), []);
  return (
    <form
      class="rowline wrap"
      onSubmit={(event) => {
        event.preventDefault();
        void save(text);
      }}
    >
      <textarea
        ref={field}
        class="grow"
        rows={2}
        aria-label={label}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && text.trim()) {
            event.preventDefault();
            void save(text);
          } else if (event.key === "Escape") cancel();
        }}
      />
      <button type="submit" disabled={!text.trim()} title="Ctrl Enter">
        Save
      </button>
      <button type="button" class="plain" onClick={cancel}>
        Cancel
      </button>
      <span class="rowline" role="group" aria-label="Tags">
        {TAGS.map((tag) => (
          <button
            key={tag}
            type="button"
            class="plain"
            aria-pressed={text.includes(tag)}
            onClick={() => {
              setText(text.includes(tag) ? text.replace(tag, "").trim() : `${tag} ${text}`);
              field.current?.focus();
            }}
          >
            {tag}
          </button>
        ))}
      </span>
    </form>
  );
}
