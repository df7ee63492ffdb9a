/**
 * A compile-time check: every required key of an answer in the server's OpenAPI document exists in the
 * more detailed type that the page uses. A verb whose answer changes fails the build.
 */

import type { Answer, Verb } from "./api";
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

type Required<T> = {
  [K in keyof T]-?: string extends K ? never : undefined extends T[K] ? never : K;
}[keyof T];
type Missing<V extends keyof Answers & Verb> = Exclude<Required<Answer<V>>, keyof Answers[V]>;
type Checked = { [V in keyof Answers]: Missing<V> extends never ? true : Missing<V> };

export const checked: Checked = {
  body: true,
  check: true,
  grep: true,
  list: true,
  outline: true,
  overview: true,
  schema: true,
  segments: true,
  span: true,
  sql: true,
  transcript: true,
  trends: true,
};
