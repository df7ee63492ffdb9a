/** A modal dialog: the browser's own, so that focus stays inside and Escape closes it. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  label: string;
  onClose: () => void;
  children: ComponentChildren;
  head?: boolean;
}

export function Dialog({ label, onClose, children, head = true }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  // Before the next key: what is typed at once belongs to the dialog.
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it by onCancel
    <dialog
      ref={box}
      aria-label={label}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === box.current && onClose()}
    >
      {head && (
        <header>
          <h2>{label}</h2>
          <button type="button" class="plain" onClick={onClose} aria-label="Close">
            ✕
          </button>
        </header>
      )}
      {children}
    </dialog>
  );
}
