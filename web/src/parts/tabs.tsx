/** Tabs as the ARIA pattern has them: arrows move, one is in the tab order. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Tab<T extends string> {
  id: T;
  label: string;
  note?: string | number | null;
}

interface Props<T extends string> {
  label: string;
  tabs: Tab<T>[];
  current: T;
  onPick: (id: T) => void;
  /** The panel's element id. */
  panel: string;
  children?: ComponentChildren;
}

export function Tabs<T extends string>({
  label,
  tabs,
  current,
  onPick,
  panel,
  children,
}: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    // Where the tabs do not fit, the chosen one must still be seen.
    box.current
      ?.querySelector("[aria-selected=true]")
      ?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === current);
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    onPick(next.id);
    document.getElementById(`${panel}-tab-${next.id}`)?.focus();
  };
  return (
    <div ref={box} class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          id={`${panel}-tab-${tab.id}`}
          role="tab"
          type="button"
          aria-selected={tab.id === current}
          aria-controls={panel}
          tabIndex={tab.id === current ? 0 : -1}
          onClick={() => onPick(tab.id)}
        >
          {tab.label}
          {tab.note != null && tab.note !== "" && <span class="tab-note">{tab.note}</span>}
        </button>
      ))}
      {children}
    </div>
  );
}

export function TabPanel({
  panel,
  current,
  children,
}: {
  panel: string;
  current: string;
  children: ComponentChildren;
}) {
  return (
    <div id={panel} role="tabpanel" aria-labelledby={`${panel}-tab-${current}`} class="column grow">
      {children}
    </div>
  );
}
