/**
 * Keyboard shortcuts: one map, filled by the components on the screen. `?` shows it.
 *
 *     useKeys([{ key: "j", label: "next row", run: next }]);
 *
 * Shortcuts are off while a text field has the focus, except Escape and those with Ctrl or Meta.
 */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Dialog } from "./parts/dialog";

export interface Key {
  /** The value of KeyboardEvent.key, with the prefix `ctrl+` for Ctrl or Meta. */
  key: string;
  label: string;
  run: () => void;
}

interface Holder {
  keys: Key[];
}
const active = signal<Holder[]>([]);
export const helpOpen = signal(false);

/** Register shortcuts while this component is shown; the innermost component wins. */
export function useKeys(keys: Key[]): void {
  const holder = useRef<Holder>({ keys });
  // Assigned while rendering, so that quick typing never calls functions of the previous frame.
  holder.current.keys = keys;
  // A layout effect, because an effect after the frame would miss quickly typed keys.
  useLayoutEffect(() => {
    const mine = holder.current;
    active.value = [...active.peek(), mine];
    return () => {
      active.value = active.peek().filter((one) => one !== mine);
    };
  }, []);
}

/** Return true if the key activates the focused element: Enter or the space bar. */
function isPressing(event: KeyboardEvent): boolean {
  return (
    /^(?:Enter| )$/.test(event.key) &&
    !event.ctrlKey &&
    !event.metaKey &&
    event.target instanceof Element &&
    event.target.closest("a, button, summary") !== null
  );
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

window.addEventListener("keydown", (event) => {
  if (event.altKey || event.defaultPrevented || isPressing(event)) return;
  const withCtrl = event.ctrlKey || event.metaKey;
  const name = withCtrl ? `ctrl+${event.key.toLowerCase()}` : event.key;
  if (isTyping(event.target)) {
    if (event.key === "Escape") (event.target as HTMLElement).blur();
    if (!withCtrl) return;
  }
  if (document.querySelector("dialog[open]") && name !== "ctrl+k") return;
  for (const { keys } of [...active.peek()].reverse()) {
    const found = keys.find((one) => one.key === name);
    if (found) {
      event.preventDefault();
      // The next Enter opens the row that is moved to, not a link that was clicked before.
      const focused = document.activeElement;
      if (/^[jk]$/.test(name) && focused instanceof HTMLElement && focused.matches("a, button"))
        focused.blur();
      found.run();
      return;
    }
  }
});

const shown = (key: string): string =>
  key
    .replace("ctrl+", "Ctrl ")
    .replace("ArrowDown", "↓")
    .replace("ArrowUp", "↑")
    .replace("ArrowLeft", "←")
    .replace("ArrowRight", "→")
    .replace(" k", " K");

export function Help() {
  if (!helpOpen.value) return null;
  const seen = new Map<string, Key>();
  for (const { keys } of active.value) for (const key of keys) seen.set(key.key, key);
  return (
    <Dialog label="Keyboard shortcuts" onClose={() => (helpOpen.value = false)}>
      <div class="content">
        <table class="plain">
          <tbody>
            {[...seen.values()].map((key) => (
              <tr key={key.key}>
                <td class="nowrap">
                  <kbd>{shown(key.key)}</kbd>
                </td>
                <td>{key.label}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}
