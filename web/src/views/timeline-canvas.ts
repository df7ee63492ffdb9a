/**
 * Drawing the timeline on a canvas: ruler, cache lane, lanes of bars. Only what is visible is drawn,
 * and bars thinner than a pixel are drawn once for each pixel, so that a long run costs no more than a
 * short one.
 */

import type { RunModel } from "../model";
import { duration, oneLine } from "../parts/format";
import type { Layout } from "./timeline-layout";

export const ROW = 18;
export const HEAD = 22;
export const RULER = 24;
export const CACHE = 44;

export interface Window_ {
  from_us: number;
  to_us: number;
}

/** One thing under another: a lane's head, or a row of it. */
export interface Strip {
  top: number;
  lane: number;
  /** -1: the lane's head. */
  row: number;
}

export function strips(layout: Layout): { strips: Strip[]; height: number } {
  const found: Strip[] = [];
  let top = RULER + (layout.cache.length ? CACHE : 0);
  layout.lanes.forEach((lane, at) => {
    found.push({ top, lane: at, row: -1 });
    top += HEAD;
    for (let row = 0; row < lane.rows.length; row++) {
      found.push({ top, lane: at, row });
      top += ROW;
    }
  });
  return { strips: found, height: top + 8 };
}

/** The colours of the page as they are now: light, dark, or the reader's own. */
export function colours(of: Element): (name: string) => string {
  const style = getComputedStyle(of);
  const values = new Map<string, string>();
  return (name) => {
    let value = values.get(name);
    if (value === undefined)
      values.set(name, (value = style.getPropertyValue(name).trim() || "#888"));
    return value;
  };
}

const KINDS = new Set(["llm", "tool", "step", "agent", "request"]);
const kindOf = (type: string): string => `--k-${KINDS.has(type) ? type : "other"}`;

export interface Scene {
  run: RunModel;
  /** The name of a span as the page shows it. */
  title: (index: number) => string;
  layout: Layout;
  strips: Strip[];
  window: Window_;
  width: number;
  height: number;
  scroll: number;
  selected: number | undefined;
  hovered: number | undefined;
  /** Spans that the filter leaves out are drawn pale. */
  matches: Uint8Array | null;
  /** A range that is being measured. */
  measured: Window_ | null;
  /** Spans with a note or a match, and the colour of their mark. */
  marked: ReadonlyMap<number, string>;
  font: string;
}

export function paint(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  colour: (name: string) => string,
): void {
  ink.clearRect(0, 0, scene.width, scene.height);
  ink.font = `12px ${scene.font}`;
  ink.textBaseline = "middle";
  const marks = ruled(scene);
  paintGrid(ink, scene, marks, colour);
  for (const strip of visibleStrips(scene)) {
    if (strip.row < 0) paintHead(ink, scene, strip, colour);
    else paintRow(ink, scene, strip, colour);
  }
  if (scene.layout.cache.length) paintCache(ink, scene, colour);
  paintRuler(ink, scene, marks, colour);
  if (scene.marked.size) paintMarks(ink, scene, colour);
  if (scene.measured) paintMeasured(ink, scene, scene.measured, colour);
}

/** A small flag at the start of each span with a note or a match. */
function paintMarks(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  colour: (name: string) => string,
): void {
  for (const strip of visibleStrips(scene)) {
    if (strip.row < 0) continue;
    for (const index of scene.layout.lanes[strip.lane]!.rows[strip.row]!.spans) {
      const mark = scene.marked.get(index);
      if (!mark) continue;
      const x = Math.max(0, toX(scene, scene.run.start(index)));
      ink.fillStyle = colour(mark);
      ink.fillRect(x, strip.top - scene.scroll, 6, 6);
    }
  }
}

function paintMeasured(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  measured: Window_,
  colour: (name: string) => string,
): void {
  const [left, right] = [toX(scene, measured.from_us), toX(scene, measured.to_us)];
  ink.globalAlpha = 0.18;
  ink.fillStyle = colour("--accent");
  ink.fillRect(left, 0, right - left, scene.height);
  ink.globalAlpha = 1;
  ink.fillRect(left, 0, 1, scene.height);
  ink.fillRect(right, 0, 1, scene.height);
}

function* visibleStrips(scene: Scene): Generator<Strip> {
  for (let at = firstBelow(scene.strips, scene.scroll - HEAD); at < scene.strips.length; at++) {
    const strip = scene.strips[at]!;
    if (strip.top - scene.scroll > scene.height) return;
    yield strip;
  }
}

function firstBelow(list: Strip[], top: number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]!.top < top) low = middle + 1;
    else high = middle;
  }
  return low;
}

export const toX = (scene: Scene, us: number): number =>
  ((us - scene.window.from_us) / (scene.window.to_us - scene.window.from_us)) * scene.width;
export const toUs = (scene: Scene, x: number): number =>
  scene.window.from_us + (x / scene.width) * (scene.window.to_us - scene.window.from_us);

function paintHead(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  strip: Strip,
  colour: (name: string) => string,
): void {
  const lane = scene.layout.lanes[strip.lane]!;
  const y = strip.top - scene.scroll;
  ink.fillStyle = colour("--sunk");
  ink.fillRect(0, y, scene.width, HEAD - 2);
  ink.fillStyle = colour("--ink-2");
  const failed = lane.failed ? ` · ${lane.failed} failed` : "";
  const crowded = lane.crowded ? ` · ${lane.crowded} overlap in the last row` : "";
  const words = `${oneLine(lane.component, 60)} · ${lane.count} ${lane.count === 1 ? "span" : "spans"}${failed}${crowded}`;
  ink.fillText(words, 8, y + HEAD / 2 - 1, scene.width - 16);
}

function paintRow(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  strip: Strip,
  colour: (name: string) => string,
): void {
  const { run, window: seen } = scene;
  const spans = scene.layout.lanes[strip.lane]!.rows[strip.row]!.spans;
  const y = strip.top - scene.scroll + 1;
  let drawnTo = -1;
  for (let at = firstEndingAfter(run, spans, seen.from_us); at < spans.length; at++) {
    const index = spans[at]!;
    if (run.start(index) > seen.to_us) break;
    const left = Math.max(toX(scene, run.start(index)), -2);
    const right = Math.min(Math.max(toX(scene, run.end(index)), left + 1.5), scene.width + 2);
    const marked = run.failed(index) || index === scene.selected || index === scene.hovered;
    if (right <= drawnTo && !marked) continue;
    drawnTo = Math.max(drawnTo, Math.ceil(right));
    paintBar(ink, scene, index, left, y, right - left, colour);
  }
}

/** Rows hold spans by start, and only the last row may overlap: so ends grow too, but for that one. */
function firstEndingAfter(run: RunModel, spans: number[], us: number): number {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.end(spans[middle]!) < us) low = middle + 1;
    else high = middle;
  }
  return low;
}

function paintBar(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  index: number,
  x: number,
  y: number,
  width: number,
  colour: (name: string) => string,
): void {
  const { run } = scene;
  const tall = ROW - 3;
  const pale = scene.matches !== null && !scene.matches[index];
  ink.globalAlpha = pale ? 0.22 : 1;
  const kind = colour(kindOf(run.type(index)));
  if (width < 3) {
    ink.fillStyle = run.failed(index) ? colour("--bad") : kind;
    ink.fillRect(x, y, width, tall);
  } else {
    ink.fillStyle = colour("--panel");
    ink.fillRect(x, y, width, tall);
    ink.globalAlpha = pale ? 0.08 : 0.25;
    ink.fillStyle = kind;
    ink.fillRect(x, y, width, tall);
    ink.globalAlpha = pale ? 0.22 : 1;
    ink.fillRect(x, y, 3, tall);
    if (run.status(index) === null) paintOpenEnd(ink, x, y, width, tall, colour("--live"));
    if (run.failed(index)) {
      ink.fillStyle = colour("--bad");
      ink.fillRect(x, y + tall, width, 2);
    }
    if (width > 34) paintLabel(ink, scene, index, x, y, width, colour);
  }
  ink.globalAlpha = 1;
  if (index === scene.selected || index === scene.hovered) {
    ink.strokeStyle = colour(index === scene.selected ? "--accent" : "--ink-3");
    ink.lineWidth = index === scene.selected ? 2 : 1;
    ink.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 2), tall - 1);
  }
}

/** What never ended has a torn edge. */
function paintOpenEnd(
  ink: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  tall: number,
  colour: string,
): void {
  ink.strokeStyle = colour;
  ink.lineWidth = 2;
  ink.setLineDash([3, 2]);
  ink.beginPath();
  ink.moveTo(x + width - 1, y);
  ink.lineTo(x + width - 1, y + tall);
  ink.stroke();
  ink.setLineDash([]);
}

function paintLabel(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  index: number,
  x: number,
  y: number,
  width: number,
  colour: (name: string) => string,
): void {
  const left = Math.max(x, 0) + 7;
  const room = Math.min(x + width, scene.width) - left - 4;
  if (room < 20) return;
  const { run } = scene;
  const sign = run.failed(index) ? "✕ " : "";
  const took = run.duration(index);
  const name = `${sign}${oneLine(scene.title(index), 80)}`;
  const words = `${name}${took === null ? " …" : `  ${duration(took)}`}`;
  // Without its duration the name of a short span is often complete.
  const shown = ink.measureText(words).width <= room ? words : fitted(ink, name, room);
  ink.fillStyle = colour("--ink");
  ink.fillText(shown, left, y + (ROW - 3) / 2 + 0.5);
}

/** As much of a text as there is room for. */
function fitted(ink: CanvasRenderingContext2D, words: string, room: number): string {
  const wide = ink.measureText(words).width;
  if (wide <= room) return words;
  let most = Math.floor((words.length * room) / wide);
  while (most > 0 && ink.measureText(`${words.slice(0, most)}…`).width > room) most--;
  return most > 0 ? `${words.slice(0, most)}…` : "";
}

// --- above the lanes ---------------------------------------------------------------------------

function paintCache(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  colour: (name: string) => string,
): void {
  const bottom = RULER + CACHE - 4;
  const tall = CACHE - 20;
  ink.fillStyle = colour("--panel");
  ink.fillRect(0, RULER, scene.width, CACHE);
  let drawn = 0;
  let sum = 0;
  for (const call of scene.layout.cache) {
    sum += call.hit;
    const left = toX(scene, scene.run.start(call.index));
    const right = Math.max(toX(scene, scene.run.end(call.index)), left + 2);
    if (right < 0 || left > scene.width) continue;
    drawn++;
    ink.fillStyle = colour("--plain-bg");
    ink.fillRect(left, bottom - tall, right - left, tall);
    ink.fillStyle = colour(call.bust ? "--bad" : "--ok");
    const high = Math.max(call.hit * tall, 1.5);
    ink.fillRect(left, bottom - high, right - left, high);
    if (call.bust) {
      ink.fillStyle = colour("--bad");
      ink.fillText("▼", left - 1, bottom - tall - 1);
    }
  }
  const busts = scene.layout.cache.filter((call) => call.bust).length;
  const mean = Math.round((sum / scene.layout.cache.length) * 100);
  ink.fillStyle = colour("--ink-2");
  const broken = busts ? ` · ▼ ${busts} ${busts === 1 ? "bust" : "busts"}` : "";
  ink.fillText(`Prompt cache · ${mean} % hit rate · ${drawn} calls${broken}`, 8, RULER + 9);
  ink.fillStyle = colour("--line");
  ink.fillRect(0, RULER + CACHE - 1, scene.width, 1);
}

const STEPS = [1, 2, 5];
/** More lines than any screen has room for. */
const MARKS_MAX = 500;

/** The smallest round step that leaves room for its words. */
export function stepFor(span_us: number, width: number): number {
  const least = (span_us / Math.max(width, 1)) * 90;
  for (let scale = 1; ; scale *= 10) {
    for (const step of STEPS) if (step * scale >= least) return step * scale;
  }
}

/** The times of the grid lines, and the distance between them. */
function ruled(scene: Scene): Marks {
  const { from_us, to_us } = scene.window;
  const step = stepFor(to_us - from_us, scene.width);
  const at: number[] = [];
  const first = Math.ceil(from_us / step);
  // Computed from the count: repeated addition stops changing large numbers.
  for (let place = 0; place < MARKS_MAX && (first + place) * step <= to_us; place++)
    at.push((first + place) * step);
  return { at, step_us: step };
}

interface Marks {
  at: number[];
  step_us: number;
}

/** The label of a grid line: one format for all lines of a window, as precise as their distance. */
export function rulerLabel(us: number, step_us: number, to_us: number): string {
  if (step_us < 1000) return `+${duration(us) || "0"}`;
  const digits = step_us < 100_000 ? 3 : step_us < 1e6 ? 1 : 0;
  const s = us / 1e6;
  if (to_us < 60e6) return `+${s.toFixed(digits)} s`;
  const minutes = Math.floor(s / 60);
  const rest = (s % 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  if (to_us < 3600e6) return `+${minutes}:${rest}`;
  return `+${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

function paintGrid(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  marks: Marks,
  colour: (name: string) => string,
): void {
  ink.fillStyle = colour("--line");
  for (const at of marks.at) ink.fillRect(Math.round(toX(scene, at)), RULER - 6, 1, scene.height);
}

function paintRuler(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  marks: Marks,
  colour: (name: string) => string,
): void {
  ink.fillStyle = colour("--panel");
  ink.fillRect(0, 0, scene.width, RULER);
  ink.fillStyle = colour("--line");
  ink.fillRect(0, RULER - 1, scene.width, 1);
  ink.font = `11px ${scene.font}`;
  for (const at of marks.at) {
    const x = Math.round(toX(scene, at));
    ink.fillStyle = colour("--line-strong");
    ink.fillRect(x, RULER - 6, 1, 6);
    ink.fillStyle = colour("--ink-2");
    ink.fillText(rulerLabel(at, marks.step_us, scene.window.to_us), x + 4, RULER / 2);
  }
}

/** The span at a point, if one is there or within 2 pixels. */
export function hit(scene: Scene, x: number, y: number): number | undefined {
  if (y < RULER) return undefined;
  const near = ((scene.window.to_us - scene.window.from_us) / scene.width) * 2;
  const at = toUs(scene, x);
  if (scene.layout.cache.length && y < RULER + CACHE) {
    const found = scene.layout.cache.find(
      (call) => at >= scene.run.start(call.index) - near && at <= scene.run.end(call.index) + near,
    );
    return found?.index;
  }
  const strip = scene.strips[firstBelow(scene.strips, y + scene.scroll + 0.01) - 1];
  if (!strip || strip.row < 0 || y + scene.scroll > strip.top + ROW) return undefined;
  const spans = scene.layout.lanes[strip.lane]!.rows[strip.row]!.spans;
  const index = spans[firstEndingAfter(scene.run, spans, at - near)];
  return index === undefined || scene.run.start(index) > at + near ? undefined : index;
}
