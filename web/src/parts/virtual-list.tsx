/** A list of any length of which only the visible rows exist. Rows of one height, or measured ones. */

import { signal } from "@preact/signals";
import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
} from "@tanstack/virtual-core";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";

export interface VirtualProps {
  count: number;
  row: (index: number) => ComponentChildren;
  /** Stable identity of a row; its index otherwise. Pass the same function while the rows are the same: a new one measures all rows again. */
  keyOf?: (index: number) => string | number;
  /** Height in px; with `measured`, a guess. */
  height?: number;
  measured?: boolean;
  /** Scrolled into view when it is another row; not when rows come in above it. */
  active?: number | null;
  /** Stays at the end while rows are added, unless the reader has scrolled up. */
  follow?: boolean;
  /** The row to put at the top whenever `turn` changes: rows above it have changed. */
  place?: { row: number; turn: number };
  /** The first active row is shown in the middle. */
  centre?: boolean;
  label: string;
  role?: JSX.AriaRole;
  rowProps?: (index: number) => JSX.HTMLAttributes<HTMLDivElement>;
  class?: string;
  onEnd?: () => void;
  /** Called with the first row in view as the reader scrolls. */
  onTop?: (index: number) => void;
}

/** True while the page is printed: lists then render all rows, up to a bound. */
const printing = signal(false);
const PRINTED_MAX = 5_000;

/** Print the page with all rows of its lists. */
export function printPage(): void {
  printing.value = true;
  // Two frames: rows are rendered in the first and laid out in the second.
  requestAnimationFrame(() => requestAnimationFrame(() => window.print()));
}
// Also for the print command of the browser's menu.
window.addEventListener("beforeprint", () => void (printing.value = true));
window.addEventListener("afterprint", () => void (printing.value = false));
window.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "p" || event.shiftKey)
    return;
  event.preventDefault();
  printPage();
});

const byIndex = (index: number): number => index;
/** As --row has it in theme.css. */
const ROW_WIDE = matchMedia("(min-width: 2200px)");

export function VirtualList(props: VirtualProps) {
  const {
    count,
    height = ROW_WIDE.matches ? 34 : 28,
    measured = false,
    active = null,
    follow = false,
  } = props;
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((turn: number) => turn + 1, 0);
  const instance = useRef<Virtualizer<HTMLDivElement, HTMLDivElement> | null>(null);
  const atEnd = useRef(true);
  const options = {
    count,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    getItemKey: props.keyOf ?? byIndex,
    overscan: 12,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => {
      const at = box.current;
      if (at) {
        atEnd.current = at.scrollTop + at.clientHeight >= at.scrollHeight - height * 1.5;
        if (props.onEnd && at.scrollTop + at.clientHeight >= at.scrollHeight - height * 20)
          props.onEnd();
      }
      if (at && props.onTop) {
        const first = list.getVirtualItems().find((item) => item.end > at.scrollTop + 4);
        if (first) props.onTop(first.index);
      }
      redraw(0);
    },
  };
  const list = (instance.current ??= new Virtualizer<HTMLDivElement, HTMLDivElement>(options));
  list.setOptions(options);
  useLayoutEffect(() => list._didMount(), []);
  useLayoutEffect(() => list._willUpdate());
  const shown =
    active !== null && active >= 0 && active < count ? options.getItemKey(active) : null;
  const centred = useRef(false);
  useLayoutEffect(() => {
    if (active === null || shown === null) return;
    const first = props.centre === true && !centred.current;
    centred.current = true;
    list.scrollToIndex(active, { align: first ? "center" : "auto" });
  }, [shown]);
  // What arrives above the list later must not push the active row out of sight.
  const current = useRef<number | null>(null);
  current.current = active;
  useEffect(() => {
    let height = box.current?.clientHeight ?? 0;
    const observer = new ResizeObserver(() => {
      const now = box.current?.clientHeight ?? 0;
      const shrunk = now < height;
      height = now;
      if (shrunk && current.current !== null)
        list.scrollToIndex(current.current, { align: "auto" });
    });
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const turn = props.place?.turn ?? 0;
  useLayoutEffect(() => {
    if (turn) list.scrollToIndex(props.place!.row, { align: "start" });
  }, [turn]);
  useLayoutEffect(() => {
    if (follow && atEnd.current && count) list.scrollToIndex(count - 1, { align: "end" });
  }, [count, follow]);
  if (printing.value) return <AllRows {...props} />;
  return (
    // biome-ignore lint/a11y/useAriaPropsSupportedByRole: the role is a list or a tree
    <div
      ref={box}
      class={`virtual ${props.class ?? "grow"}`}
      role={props.role ?? "list"}
      aria-label={props.label}
      tabIndex={0}
    >
      <div class="inner" role="presentation" style={{ height: `${list.getTotalSize()}px` }}>
        {list.getVirtualItems().map((item) => {
          const more = props.rowProps?.(item.index) ?? {};
          return (
            <div
              role={props.role ? undefined : "listitem"}
              {...more}
              key={item.key}
              class={`item ${(more.class as string | undefined) ?? ""}`}
              data-index={item.index}
              ref={
                measured ? (node: HTMLDivElement | null) => list.measureElement(node) : undefined
              }
              style={{
                transform: `translateY(${item.start}px)`,
                ...(measured ? {} : { height: `${item.size}px` }),
              }}
            >
              {props.row(item.index)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** The rows of a list on paper, one below the other. */
function AllRows(props: VirtualProps) {
  const shown = Math.min(props.count, PRINTED_MAX);
  return (
    <div class={`virtual ${props.class ?? "grow"}`} role="list" aria-label={props.label}>
      {Array.from({ length: shown }, (_, index) => {
        const more = props.rowProps?.(index) ?? {};
        return (
          <div
            key={props.keyOf?.(index) ?? index}
            class={`item printed ${(more.class as string | undefined) ?? ""}`}
          >
            {props.row(index)}
          </div>
        );
      })}
      {shown < props.count && <p>{props.count - shown} more rows</p>}
    </div>
  );
}
