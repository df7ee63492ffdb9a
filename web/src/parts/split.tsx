/** Two panes beside each other with a bar that can be moved; on a narrow screen the second covers the lower part. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { keep, recall } from "../router";

interface Props {
  name: string;
  label: string;
  first: ComponentChildren;
  /** Null: closed. */
  second: ComponentChildren | null;
  /** Width of the second pane at first, as a share of the page. */
  share?: number;
  /** One above the other. */
  stacked?: boolean;
  /** On a narrow screen only the second pane is shown. */
  covering?: boolean;
}

const LEAST = 280;

export function Split({
  name,
  label,
  first,
  second,
  share = 0.42,
  stacked = false,
  covering = false,
}: Props) {
  const [width, setWidth] = useState(
    () => Number(recall(`split.${name}`, "")) || Math.round(innerWidth * share),
  );
  const limited = Math.min(Math.max(width, LEAST), Math.max(LEAST, innerWidth - LEAST));
  const change = (to: number): void => {
    setWidth(to);
    keep(`split.${name}`, String(Math.round(to)));
  };
  return (
    <div class={`split ${stacked ? "stacked" : ""} ${covering ? "covering" : ""}`}>
      <div class="first">{first}</div>
      {second !== null && (
        <>
          <div
            class="bar"
            role="separator"
            aria-orientation="vertical"
            aria-label={`Width of ${label}`}
            aria-valuenow={Math.round((limited / innerWidth) * 100)}
            tabIndex={0}
            onKeyDown={(event) => {
              if (event.key === "ArrowLeft") change(limited + 24);
              else if (event.key === "ArrowRight") change(limited - 24);
            }}
            onPointerDown={(event) => {
              const bar = event.currentTarget;
              bar.setPointerCapture(event.pointerId);
              bar.onpointermove = (moved) => change(innerWidth - moved.clientX);
              bar.onpointerup = () => (bar.onpointermove = null);
            }}
          />
          <section class="second" aria-label={label} style={{ width: `${limited}px` }}>
            {second}
          </section>
        </>
      )}
    </div>
  );
}
