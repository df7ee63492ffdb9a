/** A list of any length of which only the visible rows exist. Rows of one height, or measured ones. */

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useReducer, useRef } from "preact/hooks";

export interface VirtualProps {
  count: number;
  row: (index: number) => ComponentChildren;
  /** Stable identity of a row; its index otherwise. The same function while the rows are the same: all are measured anew with another. */
  keyOf?: (index: number) => string | number;
  /** Height in px; with `measured`, a guess. */
  height?: number;
  measured?: boolean;
  /** Scrolled into view when it is another row; not when rows come in above it. */
  active?: number | null;
  /** Stays at the end while rows are added, unless the reader has scrolled up. */
  follow?: boolean;
  label: string;
  role?: JSX.AriaRole;
  rowProps?: (index: number) => JSX.HTMLAttributes<HTMLDivElement>;
  class?: string;
  onEnd?: () => void;
}

const byIndex = (index: number): number => index;
/** As --row has it in theme.css. */
const ROW_WIDE = matchMedia("(min-width: 2200px)");

export function VirtualList(props: VirtualProps) {
  const { count, height = ROW_WIDE.matches ? 34 : 28, measured = false, active = null, follow = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((turn: number) => turn + 1, 0);
  const kept = useRef<Virtualizer<HTMLDivElement, HTMLDivElement> | null>(null);
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
        if (props.onEnd && at.scrollTop + at.clientHeight >= at.scrollHeight - height * 20) props.onEnd();
      }
      redraw(0);
    },
  };
  const list = (kept.current ??= new Virtualizer<HTMLDivElement, HTMLDivElement>(options));
  list.setOptions(options);
  useLayoutEffect(() => list._didMount(), []);
  useLayoutEffect(() => list._willUpdate());
  const shown = active !== null && active >= 0 && active < count ? options.getItemKey(active) : null;
  useLayoutEffect(() => {
    if (active !== null && shown !== null) list.scrollToIndex(active, { align: "auto" });
  }, [shown]);
  useLayoutEffect(() => {
    if (follow && atEnd.current && count) list.scrollToIndex(count - 1, { align: "end" });
  }, [count, follow]);
  return (
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
              ref={measured ? (node: HTMLDivElement | null) => list.measureElement(node) : undefined}
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
