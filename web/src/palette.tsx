/** Ctrl-K: jump anywhere by typing. Pages and views register their commands with `useCommands`. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Dialog } from "./parts/dialog";
import { oneLine } from "./parts/format";

export interface Command {
  title: string;
  note?: string;
  /** Shown before the title, such as the outcome of a run. */
  sign?: ComponentChildren;
  /** True if the source compared it with the words: they may be in text that is not shown. */
  isMatch?: boolean;
  run: () => void;
}
/** `words` is the typed text in lower case; a source with many commands filters by it. */
export type Source = (words: string) => Command[] | Promise<Command[]>;

const sources = signal<Source[]>([]);
export const paletteOpen = signal(false);
const SHOWN_MAX = 40;

export function useCommands(source: Source): void {
  useEffect(() => {
    sources.value = [...sources.peek(), source];
    return () => {
      sources.value = sources.peek().filter((one) => one !== source);
    };
  });
}

const fits = (command: Command, words: string[]): boolean => {
  const text = `${command.title} ${command.note ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
};

export function Palette() {
  return paletteOpen.value ? <OpenPalette /> : null;
}

function OpenPalette() {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Command[]>([]);
  const [busy, setBusy] = useState(false);
  const [at, setAt] = useState(0);
  const close = (): void => void (paletteOpen.value = false);
  const words = useMemo(() => text.toLowerCase().split(/\s+/).filter(Boolean), [text]);
  useEffect(() => {
    let gone = false;
    setAt(0);
    setBusy(true);
    // The commands of the innermost component come first.
    const pending = [...sources.value]
      .reverse()
      .map((source) => Promise.resolve(source(text.toLowerCase())).catch(() => []));
    const collected: Command[][] = pending.map(() => []);
    pending.forEach((one, place) => {
      void one.then((commands) => {
        if (gone) return;
        collected[place] = commands.filter((command) => command.isMatch || fits(command, words));
        setFound(collected.flat().slice(0, SHOWN_MAX));
      });
    });
    void Promise.allSettled(pending).then(() => !gone && setBusy(false));
    return () => {
      gone = true;
    };
  }, [text]);
  const run = (command: Command | undefined): void => {
    if (!command) return;
    close();
    command.run();
  };
  const onKey = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step && found.length) {
      event.preventDefault();
      setAt((at + step + found.length) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[at]);
    } else if (event.key === "Escape") {
      close();
    }
  };
  return (
    <Dialog label="Search" onClose={close} head={false}>
      <input
        class="palette-input"
        type="text"
        role="combobox"
        aria-label="Search or jump to"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${at}` : undefined}
        placeholder="Search runs, spans and views…"
        value={text}
        autofocus
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <div id="palette-list" class="palette-list" role="listbox" aria-label="Results">
        {found.map((command, place) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the search field has the keys
          <div
            key={place}
            id={`palette-${place}`}
            role="option"
            aria-selected={place === at}
            onClick={() => run(command)}
            ref={(node) => {
              if (place === at) node?.scrollIntoView({ block: "nearest" });
            }}
          >
            {command.sign}
            <span class="cut grow">{oneLine(command.title, 120)}</span>
            <span class="quiet nowrap">{oneLine(command.note ?? "", 80)}</span>
          </div>
        ))}
      </div>
      {!found.length && (
        <div class="empty" role="status">
          {busy ? "Searching…" : "No matches"}
        </div>
      )}
    </Dialog>
  );
}
