/**
 * The waterfall: lanes by component, a cache lane, zoom and pan. What is seen here is the run's time
 * range for the other views too.
 *
 * Wheel, + and -, W and S: zoom. Drag, shift + wheel, A and D, left and right: move.
 * Shift + drag: measure a range. Double click: zoom to that span. Alt + wheel: scroll.
 */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunModel } from "../model";
import { duration, offset, oneLine } from "../parts/format";
import { useNotes } from "../parts/notes";
import { hitSpans } from "../parts/run-search";
import { filter, range, select, selected, setRange, theme } from "../router";
import { Flame, RangeTotals } from "./flame";
import { everySpan, matching, useSteps } from "./selection";
import { type StepIndex, spanTitle } from "./step-index";
import {
  CACHE,
  colours,
  hit,
  paint,
  ROW,
  RULER,
  type Scene,
  strips,
  toUs,
  type Window_,
} from "./timeline-canvas";
import { type Layout, layOut } from "./timeline-layout";
import "./timeline.css";

/** Closer than this there is nothing more to see. */
const LEAST_US = 5;
const WAIT_MS = 150;

interface Props {
  run: RunModel;
  steps: StepIndex;
}

export default function Timeline({ run, steps }: Props) {
  const layout = useMemo(() => layOut(run), [run]);
  const placed = useMemo(() => strips(layout), [layout]);
  const matches = useMemo(() => matching(run, filter.value), [run, filter.value]);
  useSteps(
    run,
    useMemo(() => everySpan(run), [run]),
  );
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [hovered, setHovered] = useState<{ index: number; x: number; y: number } | null>(null);
  const [seen, show] = useWindow(run);
  const [measured, measure] = useState<Window_ | null>(null);
  const [flame, setFlame] = useState(false);
  const notes = useNotes(run.run.short_id);
  const marked = useMemo(() => marksOf(run, notes, hitSpans.value), [run, notes, hitSpans.value]);
  const chosen = run.at(selected.value);
  const scene = useRef<Scene | null>(null);

  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => {
      const at = box.current;
      if (at) setSize({ width: at.clientWidth, height: at.clientHeight });
    });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);

  const draw = (): void => {
    const surface = canvas.current;
    const at = box.current;
    if (!surface || !at || !size.width) return;
    const scale = devicePixelRatio || 1;
    if (
      surface.width !== Math.round(size.width * scale) ||
      surface.height !== Math.round(size.height * scale)
    ) {
      surface.width = Math.round(size.width * scale);
      surface.height = Math.round(size.height * scale);
    }
    const ink = surface.getContext("2d");
    if (!ink) return;
    ink.setTransform(scale, 0, 0, scale, 0, 0);
    scene.current = {
      run,
      title: (index) => spanTitle(run, index, steps),
      layout,
      strips: placed.strips,
      window: seen,
      width: size.width,
      height: size.height,
      scroll: at.scrollTop,
      selected: chosen,
      hovered: hovered?.index,
      matches,
      measured,
      marked,
      font: getComputedStyle(at).fontFamily,
    };
    paint(ink, scene.current, colours(at));
  };
  useLayoutEffect(draw);
  useRepaint(draw);
  useEffect(() => {
    if (chosen !== undefined) reveal(box.current!, run, layout, placed.strips, chosen, seen, show);
  }, [chosen]);

  const move = useMoves(scene, show, run, setHovered, measure);
  return (
    <div class="column grow timeline">
      <Minimap run={run} seen={seen} show={show} hits={hitSpans.value} />
      <div class="rowline wrap timeline-bar">
        <button
          type="button"
          onClick={() => show(zoomed(seen, 0.5, middle(seen)))}
          title="Zoom in (+)"
        >
          +<span class="sr"> zoom in</span>
        </button>
        <button
          type="button"
          onClick={() => show(zoomed(seen, 2, middle(seen)))}
          title="Zoom out (-)"
        >
          −<span class="sr"> zoom out</span>
        </button>
        <button type="button" onClick={() => show(null)}>
          Fit
        </button>
        <span class="quiet cut">
          {offset(seen.from_us)} to {offset(seen.to_us)} · {duration(seen.to_us - seen.from_us)}
        </span>
        <RangeTotals run={run} range={measured ?? seen} measured={measured !== null} />
        {measured && (
          <>
            <button
              type="button"
              onClick={() => {
                show(measured);
                measure(null);
              }}
            >
              Zoom to range
            </button>
            <button type="button" class="plain" onClick={() => measure(null)}>
              Clear
            </button>
          </>
        )}
        <span class="grow" />
        <button type="button" aria-pressed={flame} onClick={() => setFlame(!flame)}>
          Flame
        </button>
      </div>
      {flame && <Flame run={run} range={seen} />}
      <div
        ref={box}
        class="grow scroll timeline-box"
        tabIndex={0}
        role="region"
        aria-label={`Timeline of ${run.count} spans in ${layout.lanes.length} lanes. Plus and minus zoom, arrows move, j and k select.`}
        onScroll={draw}
        onKeyDown={(event) => pressed(event, seen, show)}
        {...move}
      >
        <div class="timeline-inner" style={{ height: `${Math.max(placed.height, size.height)}px` }}>
          {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: a picture of what the tree lists */}
          <canvas
            ref={canvas}
            style={{ width: `${size.width}px`, height: `${size.height}px` }}
            aria-hidden="true"
          />
        </div>
      </div>
      {hovered && <Tip run={run} at={hovered} title={spanTitle(run, hovered.index, steps)} />}
    </div>
  );
}

const DARK = matchMedia("(prefers-color-scheme: dark)");

/** A canvas does not follow the page's colours by itself. */
function useRepaint(draw: () => void): void {
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    const again = (): void => void requestAnimationFrame(() => latest.current());
    const stop = theme.subscribe(again);
    DARK.addEventListener("change", again);
    return () => {
      stop();
      DARK.removeEventListener("change", again);
    };
  }, []);
}

/** The visible window; the other views follow it when the pointer rests. */
function useWindow(run: RunModel): [Window_, (to: Window_ | null) => void] {
  const [own, setOwn] = useState<Window_ | null>(range.peek());
  const timer = useRef<number | undefined>(undefined);
  const shared = range.value;
  useEffect(() => setOwn(shared), [shared?.from_us, shared?.to_us]);
  const all = {
    from_us: run.begin_us,
    to_us: run.length_us + (run.length_us - run.begin_us) * 0.01,
  };
  const show = (to: Window_ | null): void => {
    const limited = to && bounded(to, all);
    setOwn(limited);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setRange(limited), WAIT_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []); // it would change the next page's range
  return [own ?? all, show];
}

function bounded(to: Window_, all: Window_): Window_ | null {
  const span = Math.max(to.to_us - to.from_us, LEAST_US);
  if (span >= all.to_us - all.from_us) return null;
  const from_us = Math.min(Math.max(to.from_us, all.from_us), all.to_us - span);
  return { from_us, to_us: from_us + span };
}

const middle = (seen: Window_): number => (seen.from_us + seen.to_us) / 2;

function zoomed(seen: Window_, by: number, about: number): Window_ {
  return { from_us: about - (about - seen.from_us) * by, to_us: about + (seen.to_us - about) * by };
}

function moved(seen: Window_, by_us: number): Window_ {
  return { from_us: seen.from_us + by_us, to_us: seen.to_us + by_us };
}

function pressed(event: KeyboardEvent, seen: Window_, show: (to: Window_ | null) => void): void {
  const tenth = (seen.to_us - seen.from_us) / 10;
  const steps: Record<string, () => void> = {
    "+": () => show(zoomed(seen, 0.5, middle(seen))),
    "=": () => show(zoomed(seen, 0.5, middle(seen))),
    "-": () => show(zoomed(seen, 2, middle(seen))),
    w: () => show(zoomed(seen, 0.7, middle(seen))),
    s: () => show(zoomed(seen, 1 / 0.7, middle(seen))),
    a: () => show(moved(seen, -tenth)),
    d: () => show(moved(seen, tenth)),
    "0": () => show(null),
    ArrowLeft: () => show(moved(seen, -tenth)),
    ArrowRight: () => show(moved(seen, tenth)),
  };
  const step = steps[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  step();
}

/** Bring the selected span into sight, in time and in height, without moving what is in sight already. */
function reveal(
  box: HTMLElement,
  run: RunModel,
  layout: Layout,
  list: Scene["strips"],
  index: number,
  seen: Window_,
  show: (to: Window_ | null) => void,
): void {
  const strip = list.find(
    (one) => one.lane === layout.laneOf[index] && one.row === layout.rowOf[index],
  );
  if (strip) {
    const above = RULER + (layout.cache.length ? CACHE : 0);
    if (strip.top - box.scrollTop < above) box.scrollTop = strip.top - above - ROW;
    else if (strip.top + ROW > box.scrollTop + box.clientHeight)
      box.scrollTop = strip.top + 2 * ROW - box.clientHeight;
  }
  if (run.end(index) < seen.from_us || run.start(index) > seen.to_us) {
    show(moved(seen, (run.start(index) + run.end(index)) / 2 - middle(seen)));
  }
}

function useMoves(
  scene: { current: Scene | null },
  show: (to: Window_ | null) => void,
  run: RunModel,
  hover: (at: { index: number; x: number; y: number } | null) => void,
  measure: (range: Window_ | null) => void,
) {
  const drag = useRef<{
    x: number;
    y: number;
    top: number;
    window: Window_;
    far: boolean;
    stretch: boolean;
  } | null>(null);
  const place = (event: MouseEvent): [number, number] => {
    const edge = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  };
  return {
    onWheel: (event: WheelEvent) => {
      const now = scene.current;
      if (!now || event.altKey) return; // Alt scrolls
      event.preventDefault();
      const wide = now.window.to_us - now.window.from_us;
      if (!event.shiftKey && !event.deltaX) {
        show(
          zoomed(
            now.window,
            Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120),
            toUs(now, place(event)[0]),
          ),
        );
      } else {
        show(moved(now.window, ((event.deltaX || event.deltaY) / now.width) * wide));
      }
    },
    onPointerDown: (event: PointerEvent) => {
      if (!scene.current || event.button) return;
      drag.current = {
        x: place(event)[0],
        y: event.clientY,
        top: (event.currentTarget as HTMLElement).scrollTop,
        window: scene.current.window,
        far: false,
        stretch: event.shiftKey,
      };
    },
    onPointerMove: (event: PointerEvent) => {
      const now = scene.current;
      if (!now) return;
      const [x, y] = place(event);
      const grip = drag.current;
      if (grip && event.buttons & 1) {
        grip.far ||= Math.abs(x - grip.x) > 3 || Math.abs(event.clientY - grip.y) > 3;
        if (!grip.far) return;
        const box = event.currentTarget as HTMLElement;
        box.setPointerCapture(event.pointerId);
        if (grip.stretch) {
          const [left, right] = [Math.min(x, grip.x), Math.max(x, grip.x)];
          measure({ from_us: toUs(now, left), to_us: toUs(now, right) });
        } else {
          box.scrollTop = grip.top + grip.y - event.clientY;
          const wide = grip.window.to_us - grip.window.from_us;
          show(moved(grip.window, ((grip.x - x) / now.width) * wide));
        }
        return;
      }
      const index = hit(now, x, y);
      if (index !== now.hovered)
        hover(index === undefined ? null : { index, x: event.clientX, y: event.clientY });
    },
    onPointerUp: (event: PointerEvent) => {
      const now = scene.current;
      const grip = drag.current;
      drag.current = null;
      if (!now || !grip) return;
      const [x, y] = place(event);
      if (grip.far) return;
      const index = hit(now, x, y);
      if (index !== undefined) select(run.number(index));
    },
    onPointerLeave: () => hover(null),
    onDblClick: (event: MouseEvent) => {
      const now = scene.current;
      const index = now && hit(now, ...place(event));
      if (!now || index === undefined || index === null) return;
      const wide = Math.max(run.end(index) - run.start(index), LEAST_US);
      show({ from_us: run.start(index) - wide * 0.1, to_us: run.end(index) + wide * 0.1 });
    },
  };
}

interface TipProps {
  run: RunModel;
  at: { index: number; x: number; y: number };
  title: string;
}

function Tip({ run, at, title }: TipProps) {
  const { index } = at;
  const left = Math.min(at.x + 12, innerWidth - 320);
  const below = at.y + 90 < innerHeight;
  const tokens = run.inputTokens(index);
  return (
    <div
      class="timeline-tip panel"
      style={{ left: `${Math.max(left, 4)}px`, top: below ? `${at.y + 14}px` : `${at.y - 84}px` }}
    >
      <b class="trace">{oneLine(title, 80)}</b>
      <div class="quiet">
        {run.type(index)} · s{run.number(index)} · {run.status(index) ?? "open"} ·{" "}
        {duration(run.duration(index)) || "never ended"}
      </div>
      <div class="quiet">
        {offset(run.start(index))}
        {tokens !== null ? ` · ${tokens} tokens in` : ""}
      </div>
      {run.label(index) && <div class="trace cut">{oneLine(run.label(index), 100)}</div>}
    </div>
  );
}

// --- the overview strip ------------------------------------------------------------------

const BINS = 240;

function Minimap({
  run,
  seen,
  show,
  hits,
}: {
  run: RunModel;
  seen: Window_;
  show: (to: Window_ | null) => void;
  /** Numbers of the spans that match the search. */
  hits: ReadonlySet<number>;
}) {
  const bins = useMemo(() => density(run), [run]);
  const most = Math.max(1, ...bins.all);
  const grip = useRef<number | null>(null);
  const at = (event: PointerEvent): number => {
    const edge = (event.currentTarget as SVGElement).getBoundingClientRect();
    return (
      run.begin_us + ((event.clientX - edge.left) / edge.width) * (run.length_us - run.begin_us)
    );
  };
  const x = (us: number): number => ((us - run.begin_us) / (run.length_us - run.begin_us)) * BINS;
  return (
    <svg
      class="minimap"
      viewBox={`0 0 ${BINS} 30`}
      preserveAspectRatio="none"
      role="img"
      aria-label="Activity over time. Drag to zoom"
      onPointerDown={(event) => {
        grip.current = at(event);
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        if (grip.current === null) return;
        const to = at(event);
        show({ from_us: Math.min(grip.current, to), to_us: Math.max(grip.current, to) });
      }}
      onPointerUp={() => (grip.current = null)}
    >
      <path class="busy" d={bars(bins.all, most)} />
      <path class="failed" d={bars(bins.failed, most)} />
      <path class="hits" d={ticks(run, hits, x)} />
      <rect class="out" x="0" y="0" width={Math.max(0, x(seen.from_us))} height="30" />
      <rect
        class="out"
        x={x(seen.to_us)}
        y="0"
        width={Math.max(0, BINS - x(seen.to_us))}
        height="30"
      />
    </svg>
  );
}

/** A tick at the top of the strip for each span that matches the search. */
function ticks(run: RunModel, hits: ReadonlySet<number>, x: (us: number) => number): string {
  const places = new Set<number>();
  for (const number of hits) {
    const index = run.at(number);
    if (index !== undefined) places.add(Math.min(BINS - 1, Math.floor(x(run.start(index)))));
  }
  return [...places].map((bin) => `M${bin} 0H${bin + 1}V8H${bin}Z`).join("");
}

/** Spans with a note or a match of the search. */
function marksOf(
  run: RunModel,
  notes: ReadonlyMap<string, unknown>,
  hits: ReadonlySet<number>,
): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  for (const number of hits) {
    const index = run.at(number);
    if (index !== undefined) found.set(index, "--warn");
  }
  for (const short of notes.keys()) {
    const index = run.ofShortId(short);
    if (index !== undefined) found.set(index, "--accent");
  }
  return found;
}

function density(run: RunModel): { all: number[]; failed: number[] } {
  const all = new Array<number>(BINS).fill(0);
  const failed = new Array<number>(BINS).fill(0);
  for (let index = 0; index < run.count; index++) {
    const bin = Math.min(
      BINS - 1,
      Math.max(
        0,
        Math.floor(((run.start(index) - run.begin_us) / (run.length_us - run.begin_us)) * BINS),
      ),
    );
    all[bin]!++;
    if (run.failed(index)) failed[bin]!++;
  }
  return { all, failed };
}

/** Roots, so that a quiet stretch beside a busy one can still be seen. */
function bars(values: number[], most: number): string {
  return values
    .map((value, bin) =>
      value ? `M${bin} 30V${(30 - 28 * Math.sqrt(value / most)).toFixed(1)}H${bin + 1}V30Z` : "",
    )
    .join("");
}
