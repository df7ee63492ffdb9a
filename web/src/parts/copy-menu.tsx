/** A button with a list of things to copy. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function CopyMenu({ label, children }: { label: string; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const close = (event: Event): void => {
      const isEscape = event instanceof KeyboardEvent && event.key === "Escape";
      const outside = event.type === "pointerdown" && !box.current?.contains(event.target as Node);
      if (isEscape || outside) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, [open]);
  return (
    <div class="copy-menu" ref={box}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        {label} <span aria-hidden="true">▾</span>
      </button>
      {open && <div class="copy-menu-list panel">{children}</div>}
    </div>
  );
}
