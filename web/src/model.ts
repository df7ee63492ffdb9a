/**
 * One run in memory: the outline's columns, and what views derive from them once (children, depth).
 * A span is its index here; its number (12 of s12) is what links and the selection use. A later
 * answer of a running run is merged in by `and`, which gives a new model.
 */

import type { LinkRow, Losses, OutlineData, RunRow } from "./types";

const NUMBERS = [
  "start_us",
  "duration_us",
  "input_bytes",
  "output_bytes",
  "input_tokens",
  "output_tokens",
  "cache_read",
  "cache_write",
] as const;
const TEXTS = ["type", "name", "component", "status", "model", "label"] as const;
type NumberColumn = (typeof NUMBERS)[number];
type TextColumn = (typeof TEXTS)[number];

/** The rows so far, with a string table of their own. */
interface Rows {
  strings: string[];
  places: Map<string, number>;
  number: number[];
  id: string[];
  /** Parents' numbers; 0: none. */
  parent: number[];
  numbers: Record<NumberColumn, (number | null)[]>;
  texts: Record<TextColumn, number[]>;
  byNumber: Map<number, number>;
  logs: {
    seq: number;
    span: number;
    time_us: number;
    level: number;
    component: number;
    message: string;
    label: number;
    attributes: number;
    cut: boolean;
  }[];
  links: LinkRow[];
}

function noRows(): Rows {
  const columns = <K extends string, V>(names: readonly K[]): Record<K, V[]> =>
    Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<K, V[]>;
  return {
    strings: [""],
    places: new Map([["", 0]]),
    number: [],
    id: [],
    parent: [],
    numbers: columns<NumberColumn, number | null>(NUMBERS),
    texts: columns<TextColumn, number>(TEXTS),
    byNumber: new Map(),
    logs: [],
    links: [],
  };
}

function take(rows: Rows, data: OutlineData): void {
  const here = data.strings.map((text) => {
    let at = rows.places.get(text);
    if (at === undefined) {
      rows.places.set(text, (at = rows.strings.length));
      rows.strings.push(text);
    }
    return at;
  });
  const { spans, logs } = data;
  const places = placesOf(rows, spans.number);
  put(rows.id, spans.id, places);
  put(rows.parent, spans.parent, places);
  for (const name of NUMBERS) put(rows.numbers[name], spans[name], places);
  for (const name of TEXTS)
    put(
      rows.texts[name],
      spans[name].map((text) => here[text] ?? 0),
      places,
    );
  const cut = new Set(logs.cut);
  for (let row = 0; row < logs.seq.length; row++) {
    rows.logs.push({
      seq: logs.seq[row]!,
      span: logs.span[row]!,
      time_us: logs.time_us[row]!,
      level: here[logs.level[row]!] ?? 0,
      component: here[logs.component[row]!] ?? 0,
      message: logs.message[row]!,
      label: here[logs.label?.[row] ?? 0] ?? 0,
      attributes: here[logs.attributes?.[row] ?? 0] ?? 0,
      cut: cut.has(row),
    });
  }
  const known = new Set(
    rows.links.map((link) => `${link.span} ${link.target_run} ${link.target_span}`),
  );
  for (const link of data.links) {
    if (!known.has(`${link.span} ${link.target_run} ${link.target_span}`)) rows.links.push(link);
  }
}

/** The run's own begin may be read after what another process wrote of it. */
function moveBase(rows: Rows, by_us: number): void {
  if (!by_us) return;
  rows.numbers.start_us = rows.numbers.start_us.map((start) => (start ?? 0) + by_us);
  for (const log of rows.logs) log.time_us += by_us;
}

/** The index of each span; new spans are appended. */
function placesOf(rows: Rows, numbers: number[]): Int32Array {
  const places = new Int32Array(numbers.length);
  for (let row = 0; row < numbers.length; row++) {
    const number = numbers[row]!;
    let at = rows.byNumber.get(number);
    if (at === undefined) {
      rows.byNumber.set(number, (at = rows.number.length));
      rows.number.push(number);
    }
    places[row] = at;
  }
  return places;
}

/** A column at a time: far quicker than a row at a time. */
function put<T>(column: T[], values: readonly T[], places: Int32Array): void {
  for (let row = 0; row < places.length; row++) column[places[row]!] = values[row]!;
}

export class RunModel {
  readonly run: RunRow;
  readonly losses: Losses;
  readonly base_us: number;
  /** What to ask the next answer with; `more`: at once. */
  readonly next: string;
  readonly more: boolean;
  readonly count: number;
  readonly logCount: number;
  /** The run's length so far, at least 1. */
  readonly length_us: number;
  /** The earliest start; negative if another clock reported an earlier time. */
  readonly begin_us: number;
  /** Index by span id. */
  readonly byId = new Map<string, number>();
  /** Of each span: its children's indices, in order. */
  readonly children: number[][] = [];
  readonly roots: number[] = [];
  readonly depth: Int32Array;
  /** Indices of the failed spans without a failed child: where failures began, in order. */
  readonly failures: number[] = [];
  private readonly rows: Rows;
  /** Spans that name themselves as an ancestor; they are shown at the top. */
  private readonly torn = new Set<number>();

  constructor(data: OutlineData, before?: RunModel) {
    this.rows = before && !data.reset ? before.rows : noRows();
    if (before) moveBase(this.rows, before.base_us - data.base_us);
    take(this.rows, data);
    this.run = data.run;
    this.losses = data.losses;
    this.base_us = data.base_us;
    this.next = data.next;
    this.more = data.more;
    this.count = this.rows.number.length;
    this.logCount = this.rows.logs.length;
    this.depth = new Int32Array(this.count);
    let end = 1;
    let begin = 0;
    for (let index = 0; index < this.count; index++) {
      this.byId.set(this.rows.id[index]!, index);
      this.children.push([]);
      end = Math.max(end, this.start(index) + (this.duration(index) ?? 0));
      begin = Math.min(begin, this.start(index));
    }
    for (let index = 0; index < this.count; index++) {
      const parent = this.parent(index);
      if (parent !== null) this.children[parent]!.push(index);
      else this.roots.push(index);
    }
    for (let index = 0; index < this.count; index++) {
      if (this.failed(index) && !this.children[index]!.some((child) => this.failed(child)))
        this.failures.push(index);
    }
    for (const log of this.rows.logs) end = Math.max(end, log.time_us);
    this.length_us = end;
    this.begin_us = begin;
    this.measureDepth();
  }

  and(data: OutlineData): RunModel {
    return new RunModel(data, this);
  }

  /** Parents may come after their children, so this walks down from the roots. */
  private measureDepth(): void {
    const reached = new Uint8Array(this.count);
    this.walkDown([...this.roots], reached);
    for (let index = 0; index < this.count; index++) {
      if (reached[index]) continue;
      // A hostile run may name a span as its own ancestor; it is shown anyway.
      const parent = this.parent(index)!;
      this.children[parent] = this.children[parent]!.filter((child) => child !== index);
      this.torn.add(index);
      this.roots.push(index);
      this.walkDown([index], reached);
    }
  }

  private walkDown(open: number[], reached: Uint8Array): void {
    for (const index of open) reached[index] = 1;
    while (open.length) {
      const index = open.pop()!;
      for (const child of this.children[index]!) {
        reached[child] = 1;
        this.depth[child] = this.depth[index]! + 1;
        open.push(child);
      }
    }
  }

  private text(column: TextColumn, index: number): string {
    return this.rows.strings[this.rows.texts[column][index] ?? 0] ?? "";
  }
  /** Null if unknown. */
  private value(column: NumberColumn, index: number): number | null {
    const value = this.rows.numbers[column][index];
    return value === undefined || value === null || value < 0 ? null : value;
  }

  // --- spans, by index ---------------------------------------------------------------------

  /** The index of a span's number. */
  at(number: number | null): number | undefined {
    return number === null ? undefined : this.rows.byNumber.get(number);
  }
  number(index: number): number {
    return this.rows.number[index]!;
  }
  id(index: number): string {
    return this.rows.id[index]!;
  }
  /** `r7.s12`: what the API and the command line take. */
  shortId(index: number): string {
    return `${this.run.short_id}.s${this.number(index)}`;
  }
  /** The index of `r7.s12` or `s12`, if it is a span of this run. */
  ofShortId(short: string | null | undefined): number | undefined {
    const found = /^(?:(r\d+)\.)?s(\d+)$/.exec(short ?? "");
    if (!found || (found[1] && found[1] !== this.run.short_id)) return undefined;
    return this.at(Number(found[2]));
  }
  parent(index: number): number | null {
    const at = this.torn.has(index) ? undefined : this.at(this.rows.parent[index]!);
    return at === undefined || at === index ? null : at;
  }
  type = (index: number): string => this.text("type", index);
  name = (index: number): string => this.text("name", index);
  component = (index: number): string => this.text("component", index);
  model = (index: number): string => this.text("model", index);
  /** What it did, or its error: at most 120 characters. */
  label = (index: number): string => this.text("label", index);
  /** Null: still open when this was read. */
  status = (index: number): string | null => this.text("status", index) || null;
  start = (index: number): number => this.rows.numbers.start_us[index] ?? 0;
  duration = (index: number): number | null => this.value("duration_us", index);
  inputBytes = (index: number): number | null => this.value("input_bytes", index);
  outputBytes = (index: number): number | null => this.value("output_bytes", index);
  inputTokens = (index: number): number | null => this.value("input_tokens", index);
  outputTokens = (index: number): number | null => this.value("output_tokens", index);
  cacheRead = (index: number): number | null => this.value("cache_read", index);
  cacheWrite = (index: number): number | null => this.value("cache_write", index);
  /** An open span reaches to the end of what is known. */
  end(index: number): number {
    const took = this.duration(index);
    return took === null ? this.length_us : this.start(index) + took;
  }
  failed(index: number): boolean {
    const status = this.status(index);
    return status !== null && status !== "ok";
  }
  /** Return true if the run has a span of one of these types. */
  hasType(...types: string[]): boolean {
    const known = new Set(types.flatMap((type) => this.rows.places.get(type) ?? []));
    return known.size > 0 && this.rows.texts.type.some((place) => known.has(place));
  }
  get links(): LinkRow[] {
    return this.rows.links;
  }

  // --- log lines, by index --------------------------------------------------------------------

  log(index: number): {
    seq: number;
    span: number | undefined;
    time_us: number;
    level: string;
    component: string;
    message: string;
    label: string;
    /** JSON, or empty. */
    attributes: string;
    cut: boolean;
  } {
    const row = this.rows.logs[index]!;
    return {
      seq: row.seq,
      span: this.at(row.span),
      time_us: row.time_us,
      level: this.rows.strings[row.level] ?? "",
      component: this.rows.strings[row.component] ?? "",
      message: row.message,
      label: this.rows.strings[row.label] ?? "",
      attributes: this.rows.strings[row.attributes] ?? "",
      cut: row.cut,
    };
  }
}
