/** Two panes beside each other with a bar that can be moved; on a narrow screen the second covers the lower part. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { keep, recall } from "../state";

interface Props {
  name: string;
  label: string;
  first: ComponentChildren;
  /** Null: closed. */
  second: ComponentChildren | null;
}

const LEAST = 280;

export function Split({ name, label, first, second }: Props) {
  const [width, setWidth] = useState(() => Number(recall(`split.${name}`, "")) || Math.round(innerWidth * 0.42));
  const held = Math.min(Math.max(width, LEAST), Math.max(LEAST, innerWidth - LEAST));
  const change = (to: number): void => {
    setWidth(to);
    keep(`split.${name}`, String(Math.round(to)));
  };
  return (
    <div class="split">
      <div class="first">{first}</div>
      {second !== null && (
        <>
          <div
            class="bar"
            role="separator"
            aria-orientation="vertical"
            aria-label={`Width of ${label}`}
            aria-valuenow={Math.round((held / innerWidth) * 100)}
            tabIndex={0}
            onKeyDown={(event) => {
              if (event.key === "ArrowLeft") change(held + 24);
              else if (event.key === "ArrowRight") change(held - 24);
            }}
            onPointerDown={(event) => {
              const bar = event.currentTarget;
              bar.setPointerCapture(event.pointerId);
              bar.onpointermove = (moved) => change(innerWidth - moved.clientX);
              bar.onpointerup = () => (bar.onpointermove = null);
            }}
          />
          <section class="second" aria-label={label} style={{ width: `${held}px` }}>
            {second}
          </section>
        </>
      )}
    </div>
  );
}
