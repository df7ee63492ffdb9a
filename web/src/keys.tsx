/**
 * The keyboard: one map, filled by whoever is on the screen. `?` shows it.
 *
 *     useKeys([{ key: "j", say: "next row", run: next }]);
 *
 * Keys do nothing while somebody types into a field, except Escape and those with Ctrl or Meta.
 */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Dialog } from "./parts/dialog";

export interface Key {
  /** As KeyboardEvent.key has it, with `ctrl+` before it where that is held. */
  key: string;
  say: string;
  run: () => void;
}

interface Holder {
  keys: Key[];
}
const active = signal<Holder[]>([]);
export const helpOpen = signal(false);

/** Keys of this component while it is shown; the latest shown wins. */
export function useKeys(keys: Key[]): void {
  const holder = useRef<Holder>({ keys });
  // While rendering, not after: quick typing must not meet the functions of the frame before.
  holder.current.keys = keys;
  // Before the next key can come: an effect after the frame would lose those typed quickly.
  useLayoutEffect(() => {
    const mine = holder.current;
    active.value = [...active.peek(), mine];
    return () => {
      active.value = active.peek().filter((one) => one !== mine);
    };
  }, []);
}

/** Enter and the space bar press what has the focus. */
function isPressing(event: KeyboardEvent): boolean {
  return /^(?:Enter| )$/.test(event.key) && !event.ctrlKey && !event.metaKey && event.target instanceof Element && event.target.closest("a, button, summary") !== null;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

window.addEventListener("keydown", (event) => {
  if (event.altKey || event.defaultPrevented || isPressing(event)) return;
  const held = event.ctrlKey || event.metaKey;
  const name = held ? `ctrl+${event.key.toLowerCase()}` : event.key;
  if (isTyping(event.target)) {
    if (event.key === "Escape") (event.target as HTMLElement).blur();
    if (!held) return;
  }
  if (document.querySelector("dialog[open]") && name !== "ctrl+k") return;
  for (const { keys } of [...active.peek()].reverse()) {
    const found = keys.find((one) => one.key === name);
    if (found) {
      event.preventDefault();
      found.run();
      return;
    }
  }
});

const shown = (key: string): string =>
  key.replace("ctrl+", "Ctrl ").replace("ArrowDown", "↓").replace("ArrowUp", "↑").replace(" k", " K");

export function Help() {
  if (!helpOpen.value) return null;
  const seen = new Map<string, Key>();
  for (const { keys } of active.value) for (const key of keys) seen.set(key.key, key);
  return (
    <Dialog label="Keyboard" onClose={() => (helpOpen.value = false)}>
      <div class="content">
        <table class="plain">
          <tbody>
            {[...seen.values()].map((key) => (
              <tr key={key.key}>
                <td class="nowrap"><kbd>{shown(key.key)}</kbd></td>
                <td>{key.say}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}
