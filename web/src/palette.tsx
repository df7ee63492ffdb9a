/** Ctrl-K: go anywhere by typing. Pages and views add what they know with `useCommands`. */

import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { oneLine } from "./parts/format";
import { Dialog } from "./parts/dialog";

export interface Command {
  title: string;
  note?: string;
  run: () => void;
}
/** `words` is what was typed, in lower case; a source with much to offer filters by it. */
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
  const [at, setAt] = useState(0);
  const close = (): void => void (paletteOpen.value = false);
  const words = useMemo(() => text.toLowerCase().split(/\s+/).filter(Boolean), [text]);
  useEffect(() => {
    let gone = false;
    setAt(0);
    // The nearest place first: what the page itself added last.
    const asked = [...sources.value].reverse().map((source) => Promise.resolve(source(text.toLowerCase())).catch(() => []));
    const collected: Command[][] = asked.map(() => []);
    asked.forEach((one, place) => {
      void one.then((commands) => {
        if (gone) return;
        collected[place] = commands.filter((command) => fits(command, words));
        setFound(collected.flat().slice(0, SHOWN_MAX));
      });
    });
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
    <Dialog label="Go to" onClose={close} head={false}>
      <input
        class="palette-input"
        type="text"
        role="combobox"
        aria-label="Go to a run, a span, a view or a command"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${at}` : undefined}
        placeholder="Go to a run, a span, a view…"
        value={text}
        autofocus
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <ul id="palette-list" class="palette-list" role="listbox" aria-label="Places">
        {found.map((command, place) => (
          <li
            key={place}
            id={`palette-${place}`}
            role="option"
            aria-selected={place === at}
            onClick={() => run(command)}
            ref={(node) => { if (place === at) node?.scrollIntoView({ block: "nearest" }); }}
          >
            <span class="cut">{oneLine(command.title, 120)}</span>
            <span class="quiet cut">{oneLine(command.note ?? "", 80)}</span>
          </li>
        ))}
      </ul>
      {!found.length && <div class="empty">Nothing like that.</div>}
    </Dialog>
  );
}
