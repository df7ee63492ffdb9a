/**
 * Checked by the compiler, run by nobody: every key that the server's OpenAPI document promises of
 * an answer is one that the page's own, deeper type of it has. A verb that changes fails the build.
 */

import type { Told, Verb } from "./api";
import type {
  BodyData,
  CheckData,
  GrepData,
  ListData,
  OutlineData,
  OverviewData,
  SchemaData,
  SegmentsData,
  SpanData,
  SqlData,
  TranscriptData,
  TrendsData,
} from "./types";

interface Answers {
  body: BodyData;
  check: CheckData;
  grep: GrepData;
  list: ListData;
  outline: OutlineData;
  overview: OverviewData;
  schema: SchemaData;
  segments: SegmentsData;
  span: SpanData;
  sql: SqlData;
  transcript: TranscriptData;
  trends: TrendsData;
}

type Required<T> = { [K in keyof T]-?: string extends K ? never : undefined extends T[K] ? never : K }[keyof T];
type Missing<V extends keyof Answers & Verb> = Exclude<Required<Told<V>>, keyof Answers[V]>;
type Kept = { [V in keyof Answers]: Missing<V> extends never ? true : Missing<V> };

export const kept: Kept = {
  body: true, check: true, grep: true, list: true, outline: true, overview: true, schema: true,
  segments: true, span: true, sql: true, transcript: true, trends: true,
};
