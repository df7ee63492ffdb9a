/** A button that opens a small panel below it: choices, filters or actions. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: ComponentChildren;
  /** The accessible name, if the label is not enough. */
  name?: string;
  /** `close` hides the panel. */
  children: (close: () => void) => ComponentChildren;
  align?: "left" | "right";
  class?: string;
}

export function Menu({ label, name, children, align = "left", class: extra = "" }: Props) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const close = (): void => setOpen(false);
  // Before the next key, which the page behind the menu must not get.
  useLayoutEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => {
      if (!box.current?.contains(event.target as Node)) close();
    };
    const onEscape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      close();
      box.current?.querySelector("button")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", onEscape, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", onEscape, true);
    };
  }, [open]);
  return (
    <div class="menu" ref={box}>
      <button
        type="button"
        class={extra}
        aria-label={name}
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        {label} <span aria-hidden="true">▾</span>
      </button>
      {open && <div class={`menu-panel to-${align}`}>{children(close)}</div>}
    </div>
  );
}
