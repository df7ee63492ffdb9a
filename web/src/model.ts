/**
 * One run in memory: the outline's columns, and what views derive from them once (children, depth,
 * order). A span is its index here; `number` (12 of s12) is what links and the selection use.
 */

import type { OutlineData, RunRow } from "./types";

export class RunModel {
  readonly run: RunRow;
  readonly count: number;
  readonly logCount: number;
  /** The run's length so far, at least 1. */
  readonly length_us: number;
  /** Index by span number. */
  readonly byNumber = new Map<number, number>();
  /** Index by span id. */
  readonly byId = new Map<string, number>();
  /** Of each span: its children's indices, in order. */
  readonly children: number[][] = [];
  readonly roots: number[] = [];
  readonly depth: Int32Array;

  constructor(readonly data: OutlineData) {
    const { spans, logs } = data;
    this.run = data.run;
    this.count = spans.id.length;
    this.logCount = logs.seq.length;
    this.depth = new Int32Array(this.count);
    let end = 1;
    for (let index = 0; index < this.count; index++) {
      this.byNumber.set(spans.number[index]!, index);
      this.byId.set(spans.id[index]!, index);
      this.children.push([]);
      end = Math.max(end, spans.start_us[index]! + (spans.duration_us[index] ?? 0));
    }
    for (let index = 0; index < this.count; index++) {
      const parent = spans.parent[index]!;
      if (parent >= 0 && parent !== index) this.children[parent]!.push(index);
      else this.roots.push(index);
    }
    for (const time of logs.time_us) end = Math.max(end, time);
    this.length_us = end;
    this.measureDepth();
  }

  /** Parents may stand behind their children, so this walks down from the roots. */
  private measureDepth(): void {
    const open = [...this.roots];
    while (open.length) {
      const index = open.pop()!;
      for (const child of this.children[index]!) {
        this.depth[child] = this.depth[index]! + 1;
        open.push(child);
      }
    }
  }

  private text(value: string | number | undefined): string {
    if (typeof value === "number") return this.data.strings[value] ?? "";
    return value ?? "";
  }

  number(index: number): number {
    return this.data.spans.number[index]!;
  }
  /** `r7.s12`: what the API and the command line take. */
  shortId(index: number): string {
    return `${this.run.short_id}.s${this.number(index)}`;
  }
  name(index: number): string {
    return this.text(this.data.spans.name[index]);
  }
  type(index: number): string {
    return this.text(this.data.spans.type[index]);
  }
  component(index: number): string {
    return this.text(this.data.spans.component[index]);
  }
  /** Null: still open when this was read. */
  status(index: number): string | null {
    const at = this.data.spans.status[index] ?? -1;
    return at < 0 ? null : (this.data.strings[at] ?? null);
  }
  model(index: number): string {
    const at = this.data.spans.model[index] ?? -1;
    return at < 0 ? "" : (this.data.strings[at] ?? "");
  }
  label(index: number): string {
    return this.data.spans.label[index] ?? "";
  }
  start(index: number): number {
    return this.data.spans.start_us[index]!;
  }
  duration(index: number): number | null {
    return this.data.spans.duration_us[index] ?? null;
  }
  /** An open span reaches to the end of what is known. */
  end(index: number): number {
    const took = this.duration(index);
    return took === null ? this.length_us : this.start(index) + took;
  }
  failed(index: number): boolean {
    const status = this.status(index);
    return status !== null && status !== "ok";
  }
  level(log: number): string {
    return this.text(this.data.logs.level[log]);
  }
  logComponent(log: number): string {
    return this.text(this.data.logs.component[log]);
  }

  /** Indices of spans that did not end well, in order; also those that never ended. */
  get failures(): number[] {
    const found: number[] = [];
    for (let index = 0; index < this.count; index++) {
      if (this.failed(index)) found.push(index);
    }
    return found;
  }
}
