/** Shapes of the API's answers, as the page reads them. Times in whole microseconds since `base_ns`. */

export interface RunRow {
  id: string;
  short_id: string;
  name: string;
  outcome: string;
  started_at: string;
  started_ns: number;
  ended_ns: number | null;
  duration_ns: number | null;
  last_ns: number;
  span_count: number;
  log_count: number;
  error_count: number;
  conversation_id: string | null;
  component: string | null;
  input_tokens: number;
  output_tokens: number;
  pinned: boolean;
  implicit: boolean;
  process_run?: string | null;
  cost_usd?: number | null;
  top_finding?: string | null;
}

export interface ListData {
  version: number;
  runs: RunRow[];
  next?: string | null;
}

export interface Finding {
  check: string;
  severity: "error" | "warning" | "hint";
  confidence: number;
  basis: "measured" | "hypothesis";
  kind: string;
  message: string;
  /** Span id. */
  cause: string | null;
  evidence: string[];
  command: string;
  lead?: boolean;
}

export interface CheckData {
  version: number;
  run_id: string;
  findings: Finding[];
  passed: string[];
  failed: Record<string, string>;
}

export interface OverviewData {
  version: number;
  run: RunRow;
  types: Record<string, number>;
  findings: Finding[];
  passed: string[];
  cost_usd: number | null;
  good_run: RunRow | null;
  stamps: string[];
}

/** One run, column by column. A number in `type`, `status`, `model`, `level` points into `strings`. */
export interface OutlineData {
  version: number;
  run: RunRow;
  base_ns: number;
  strings: string[];
  spans: {
    number: number[];
    id: string[];
    parent: number[];
    type: number[];
    name: (string | number)[];
    component: (string | number)[];
    status: number[];
    start_us: number[];
    duration_us: (number | null)[];
    input_bytes: (number | null)[];
    output_bytes: (number | null)[];
    input_tokens: (number | null)[];
    output_tokens: (number | null)[];
    cache_read: (number | null)[];
    cache_write: (number | null)[];
    model: number[];
    label: string[];
  };
  logs: {
    seq: number[];
    span: number[];
    time_us: number[];
    level: number[];
    component: (string | number)[];
    message: string[];
  };
  links: { span: number; target_run: string | null; target_span: string; reason: string | null }[];
  losses: Record<string, unknown>;
  next?: string | number | null;
}

export interface BodyData {
  version: number;
  span_id: string;
  short_id: string;
  which: "input" | "output";
  path: string | null;
  size_bytes: number;
  start: number;
  end: number;
  next: number | null;
  note: string | null;
  encoding: "text" | "base64";
  text: string;
}

export interface SpanData {
  version: number;
  run_id: string;
  span: Record<string, unknown> & { id: string; short_id: string };
  parent: string | null;
  children: string[];
  linked_from: { run_id: string; span_id: string; reason: string | null }[];
  logs: Record<string, unknown>[];
  previews: Record<string, unknown>;
}

export interface SqlData {
  version: number;
  columns: string[];
  rows: unknown[][];
  next: number | null;
}
