/**
 * Shapes of the API's answers, as the page reads them. `_at`: ISO time; `_us`: microseconds after
 * the run's start. Every text that came from a trace is foreign: render it as text.
 */

export interface RunRow {
  id: string;
  short_id: string;
  name: string;
  outcome: string;
  started_at: string;
  ended_at: string | null;
  duration_ms: number | null;
  span_count: number;
  log_count: number;
  error_count: number;
  conversation_id: string | null;
  component: string | null;
  tokens: number;
  input_tokens: number;
  output_tokens: number;
  pinned: boolean;
  cost_usd?: number | null;
  /** False: some model calls have no price. */
  cost_complete?: boolean;
  model_calls?: number;
  unpriced_models?: string[];
  /** The code of the most severe finding, its sentence and severity. */
  top_finding?: string | null;
  finding?: string;
  finding_severity?: string;
  title?: string;
  task?: string | null;
  result?: string | null;
  note_count?: number;
  /** The run of which this one is a fork or a replay. */
  fork_of?: string;
  replay_of?: string;
  latest_note?: string;
  /** Where the run has the words of the filter, if not in its name, task or result. */
  match?: Hit;
  group?: Group;
}

/** Sums over all runs that match a filter. */
export interface RunTotals {
  runs: number;
  failed: number;
  running: number;
  tokens: number;
  cost_usd: number | null;
  unpriced_models: string[];
  model_calls: number;
  p50_ms: number | null;
  p95_ms: number | null;
  /** False: more runs match than were added up. */
  complete: boolean;
}

export interface Group {
  conversation_id: string;
  runs: number;
  failed: number;
  first_started_at: string;
  input_tokens: number;
  output_tokens: number;
}

/** Failed runs with the same cause, newest first. */
export interface FailureGroup {
  id: string;
  count: number;
  description: string;
  place: string;
  first_ns: number;
  last_ns: number;
  trend: number[];
  versions: string[];
  newest: string;
  /** Short id of the span that caused the newest failure. */
  cause: string | null;
  runs: string[];
  good_runs: number;
  differences: { kind: string; what: string; a: string; b: string }[];
}

export interface GroupsData {
  version: number;
  examined: number;
  /** Runs for which no time was left: the next answer has more of them. */
  unexamined: number;
  /** True: older runs match that were not examined. */
  more: boolean;
  groups: FailureGroup[];
}

export interface ListData {
  version: number;
  runs: RunRow[];
  next?: string | null;
  more?: boolean;
  looked_at?: number | null;
  totals?: RunTotals;
  /** The totals by hour or day. */
  buckets?: (RunTotals & { at: string })[];
  /** What the words of the filter select, for people to read. */
  understood?: string;
}

export interface Finding {
  check: string;
  severity: "error" | "warning" | "hint";
  confidence: number;
  basis: "measured" | "hypothesis";
  kind: string;
  message: string;
  /** Span id; null: the run as a whole. */
  cause: string | null;
  cause_short?: string | null;
  evidence: string[];
  evidence_short?: string[];
  command: string;
  lead?: boolean;
}

export interface CheckData {
  version: number;
  run_id: string;
  findings: Finding[];
  passed: string[];
  not_applicable: string[];
  failed: Record<string, string>;
}

/** One step of a run: a model call, and what it did. */
export interface StepRow {
  number: number;
  /** Short id of the model call, or of the message, tool or test case. */
  span: string | null;
  agent: string | null;
  conversation: number;
  parent: number | null;
  depth: number;
  headline: string;
  title: string;
  result: string;
  status: string;
  error: string | null;
  failed: boolean;
  model: string | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cost_usd: number | null;
  total_cost_usd: number | null;
  started_ns: number;
  duration_ns: number | null;
  spans: string[];
  actions: {
    kind: string;
    name: string;
    span: string | null;
    call_id: string | null;
    status: string;
    error: string | null;
    duration_ns: number | null;
    steps: number[];
  }[];
}

export interface OverviewData {
  version: number;
  run: RunRow;
  title: string;
  task: string | null;
  answer: string | null;
  steps: StepRow[];
  /** The main finding, as a sentence. */
  cause: {
    sentence: string;
    detail: string;
    severity: Finding["severity"];
    kind: string;
    span: string | null;
    step: number | null;
  } | null;
  /** Models without a price: the cost is a lower bound. */
  unpriced_models: string[];
  types: Record<string, number>;
  findings: Finding[];
  passed: string[];
  not_applicable: string[];
  cost_usd: number | null;
  good_run: RunRow | null;
  /** Other runs of the program that opened this one, and its command if that failed. */
  same_program: RunRow[];
  /** Attributes that nearly all spans have with the same value. */
  common_attributes: Record<string, string | number | boolean>;
  stamps: string[];
}

export interface Losses {
  redactions: Record<string, number>;
  bodies_cut: number;
  bodies_lost: number;
  records_dropped: number;
  records_missing: number;
  lines_malformed: number;
  not_sampled: boolean;
}

/** One run, column by column. Texts but `id` and `message` are indices into `strings` of this answer; 0: none. */
export interface OutlineData {
  version: number;
  run: RunRow;
  base_us: number;
  strings: string[];
  spans: {
    number: number[];
    id: string[];
    /** Its parent's number; 0: none. */
    parent: number[];
    type: number[];
    name: number[];
    component: number[];
    /** 0: still open. */
    status: number[];
    start_us: number[];
    duration_us: (number | null)[];
    /** -1, here and below: unknown. */
    input_bytes: number[];
    output_bytes: number[];
    input_tokens: number[];
    output_tokens: number[];
    cache_read: number[];
    cache_write: number[];
    model: number[];
    label: number[];
  };
  logs: {
    seq: number[];
    /** A span's number; 0: outside of any. */
    span: number[];
    time_us: number[];
    level: number[];
    component: number[];
    message: string[];
    label: number[];
    /** JSON; 0: none, or too long. */
    attributes: number[];
    cut: number[];
  };
  links: LinkRow[];
  losses: Losses;
  next: string;
  more: boolean;
  reset: boolean;
}

export interface LinkRow {
  span: number;
  target_run: string | null;
  target_span: string;
  reason: string | null;
}

/** A text, perhaps cut; `body` says where the whole is. */
export interface Text {
  text: string;
  /** Of the whole. */
  size_bytes: number;
  cut: boolean;
  body: { span: string; which: "input" | "output" } | null;
  /** Passages that another step shows; step 0 is the task. */
  repeats?: { begin: number; end: number; step: number }[];
}

interface ItemBase {
  cursor: string;
  span: string | null;
  /** The number of its step; null before the first one and after the last. */
  step: number | null;
  at_us: number;
  depth: number;
}
export interface CallItem extends ItemBase {
  kind: "call";
  name: string;
  agent: string | null;
  /** What the step thought or did, in one line. */
  headline: string;
  model: string | null;
  status: string;
  duration_us: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cache_read: number | null;
  cache_write: number | null;
  cost_usd: number | null;
  messages: number;
  repeated: number;
  text: Text | null;
  thinking: Text | null;
  calls: { id: string | null; name: string; arguments: Text; span: string | null }[];
  finish_reason: string | null;
  error: string | null;
}
export interface ToolItem extends ItemBase {
  kind: "tool";
  edits: FileEdit[];
  /** Null: of a call from before what was recorded. */
  name: string | null;
  /** The call and its result in one line: `search(q=refunds) -> three pages`. */
  line: string;
  /** `code`: the model's own code, which its answer shows. */
  action?: "tool" | "code" | "agent" | "step";
  call_id: string | null;
  asked_by: string | null;
  status: string;
  duration_us: number | null;
  arguments: Text | null;
  result: Text | null;
  is_error: boolean;
  error: string | null;
}
export interface MessageItem extends ItemBase {
  kind: "message";
  role: string;
  /** `text`, `thinking`, `image`, ... */
  part: string;
  text: Text;
}
export interface StepItem extends ItemBase {
  kind: "step";
  type: string;
  name: string;
  component: string;
  status: string;
  duration_us: number | null;
  /** Its attributes, as far as one line holds them. */
  label: string;
  children: boolean;
}
export interface StateItem extends ItemBase {
  kind: "state";
  name: string;
  index: number | null;
  /** Null: it has no body. */
  text: Text | null;
}
export interface LogItem extends ItemBase {
  kind: "log";
  level: string;
  component: string;
  text: Text;
  label: string;
}
export interface ErrorItem extends ItemBase {
  kind: "error";
  text: Text;
  type: string | null;
}
export type Item = MessageItem | CallItem | ToolItem | StepItem | StateItem | LogItem | ErrorItem;

export interface TranscriptData {
  version: number;
  run: RunRow;
  items: Item[];
  next: string | null;
}

export interface SegmentsData {
  version: number;
  span: string;
  basis: "recorded" | "parsed";
  ranges: "body" | "parts" | null;
  request_bytes: number;
  covered_bytes: number;
  segments_left_out: number;
  segments: {
    contributor: string;
    kind: string;
    role: string | null;
    size_bytes: number;
    begin: number;
    end: number;
    path: string | null;
    share: number;
    tokens_estimated: number;
    preview: string;
    cached: boolean | null;
  }[];
  contributors: {
    contributor: string;
    kind: string;
    size_bytes: number;
    share: number;
    tokens_estimated: number;
    count: number;
  }[];
  cache: {
    read_tokens: number | null;
    write_tokens: number | null;
    breakpoints: number[];
    prefix_end: number;
  };
}

export interface Sums {
  runs: number;
  errors: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  cost_usd: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
}
export interface Ranked {
  name: string;
  bytes_per_turn: number;
  tokens_per_turn_estimated: number;
  seen: number;
  looked_at: number;
  /** Model calls of the runs that offered it. */
  turns: number;
  calls: number | null;
  ok: number | null;
  asked: number;
}
export interface Ranking {
  measured: {
    runs: number;
    requests: number;
    requests_skipped: number;
    turns: number;
    tools: Ranked[];
    contributors: Ranked[];
  };
  hypotheses: unknown[];
}
export interface TrendsData {
  version: number;
  by: "day" | "hour";
  since: string;
  buckets: (Sums & { at: string })[];
  totals: Sums;
  /** False: too many model calls to price by the hour. */
  priced: boolean;
  unpriced_models: string[];
  tools: Ranking | null;
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

export interface BodyRef {
  id: number | null;
  size_bytes: number;
  cut: string | null;
}

/** A file that a tool call edited, with its unified diff. */
export interface FileEdit {
  path: string;
  kind: "edited" | "written" | "created" | "deleted";
  added: number;
  removed: number;
  diff: string;
}

export interface SpanData {
  version: number;
  run_id: string;
  span: {
    id: string;
    short_id: string;
    parent_id: string | null;
    type: string;
    name: string;
    component: string;
    status: string | null;
    started_at: string;
    duration_ms: number | null;
    attributes: Record<string, string | number | bigint | boolean | null>;
    links: { run_id: string | null; span_id: string; reason: string | null }[];
    input: BodyRef | null;
    output: BodyRef | null;
    redacted: Record<string, number>;
  };
  parent: string | null;
  children: string[];
  linked_from: { run_id: string; span_id: string; reason: string | null }[];
  logs: Record<string, unknown>[];
  previews: Record<string, string>;
  edits: FileEdit[];
  /** Null: no model call, or nothing is known of its price. */
  cost_usd: number | null;
}

/** A text that matches a search, with the text around it. */
export interface Hit {
  run_id: string;
  span_id: string | null;
  short_id: string;
  part: string;
  before: string;
  match: string;
  after: string;
  count: number;
  bodies: number;
}

export interface GrepData {
  version: number;
  hits: Hit[];
  next: string | null;
}

export interface SqlData {
  version: number;
  columns: string[];
  rows: unknown[][];
  next: number | null;
}

export interface SchemaData {
  version: number;
  store_version: number;
  tables: { name: string; columns: string[]; sql: string }[];
  views: { name: string; columns: string[]; sql: string }[];
  examples: string[];
}

export interface FieldDiff {
  mark: string;
  where: string;
  a: string | null;
  b: string | null;
  /** Both values in full, if they are long texts. */
  a_text?: string;
  b_text?: string;
}
export interface BodyDiff {
  /** Set alone if only one side has a body. */
  note?: string;
  kind?: string;
  alike?: boolean;
  identical?: boolean;
  only_ids_or_times?: boolean;
  differences?: FieldDiff[];
  differences_left_out?: number;
  first_byte?: number | null;
  words?: string | null;
  notes?: string[];
  /** Both bodies in full, if they are compared line by line. */
  a_text?: string | null;
  b_text?: string | null;
}
export interface SpanDiffData {
  version: number;
  kind: "spans";
  differs: boolean;
  a: string;
  b: string;
  fields: FieldDiff[];
  input?: BodyDiff | null;
  output?: BodyDiff | null;
}

export interface WhyData {
  version: number;
  chain: {
    relation: string;
    reason: string | null;
    run_id: string;
    span_id: string;
    short_id: string;
    finding: Finding | null;
  }[];
  others: Finding[];
}

export interface NotesData {
  version: number;
  notes: {
    id: string;
    text: string;
    author: string | null;
    created_at: string;
    span: string | null;
  }[];
}

export interface ReproduceData {
  version: number;
  language: string;
  text: string;
}

export interface Change {
  slice_type: string;
  before: number;
  after: number;
  added: number;
  removed: number;
  changed: number;
  examples: string[];
}
export interface SnapshotRow {
  index: number;
  span: string;
  at_us: number;
  created_at: string | null;
  session_id: string | null;
  reason: string | null;
  status: string;
  size_bytes: number | null;
  slices: {
    slice_type: string;
    item_type: string | null;
    item_count: number;
    items?: unknown[];
    cut?: boolean;
  }[];
  changes: Change[];
  errors: string[];
  text?: Text | null;
}
export interface StateData {
  version: number;
  run: RunRow;
  snapshots: SnapshotRow[];
  snapshot: SnapshotRow | null;
  diff: { from: number; to: number; changes: Change[] } | null;
  next: number | null;
}

export interface FileRow {
  path: string;
  span: string;
  at_us: number;
  size_bytes: number;
  sha256: string | null;
  versions: number;
  binary: boolean | null;
  preview: string | null;
  cut: string | null;
  /** The side of the span that holds the bytes. */
  body: "input" | "output";
}
export interface FilesData {
  version: number;
  run: RunRow;
  at_us: number | null;
  files: FileRow[];
}

export interface DiffRow {
  /** `=`: a stretch of `count` equal steps, `a` and `b` its first and last span. */
  mark: "=" | "~" | "+" | "-";
  count?: number;
  class?: string | null;
  a: string | readonly string[] | null;
  b: string | readonly string[] | null;
  a_text?: string | null;
  b_text?: string | null;
  depth?: number;
  aspects?: string[];
  words?: string | null;
  /** The step in words, and what differs in it. */
  a_step?: string | null;
  b_step?: string | null;
  a_content?: string | null;
  b_content?: string | null;
  /** True: all of it repeats an earlier difference, such as a tool's result in a prompt. */
  consequence?: boolean;
  /** True: an agent or a step, whose output repeats what differs inside. */
  container?: boolean;
}
export interface Delta {
  name: string;
  a: number | string | null;
  b: number | string | null;
}
export interface RunsDiffData {
  version: number;
  kind: "runs";
  differs: boolean;
  a: string;
  b: string;
  same: number;
  run: FieldDiff[];
  rows: DiffRow[];
  first_row: number | null;
  rows_left_out?: number;
  deltas: Delta[];
}
