/**
 * All access to data. An exported page contains its answers; a served page asks its server.
 *
 *     const run = await get<OutlineData>("outline", { id: "r7" });
 *
 * The same question always has the same key (`keyOf`), by which an export finds its answers: use short
 * ids (r7, r7.s12), and leave out defaults.
 */

import { suspect } from "./connection";
import type { paths } from "./generated/openapi";
import { findWords } from "./parts/find-words";

type Operations = {
  [P in keyof paths as P extends `/api/v1/${infer V}` ? V : never]: paths[P]["get"];
};
/** A verb: a path of the server's OpenAPI document. */
export type Verb = keyof Operations;
type Query<V extends Verb> = NonNullable<
  Operations[V] extends { parameters: { query?: infer Q } } ? Q : never
>;
type Names<V extends Verb> = V extends Verb ? keyof Query<V> : never;
/** Query parameters, as named in the document. */
export type Params = {
  [N in Names<Verb>]?: string | number | boolean | readonly string[] | null | undefined;
};
/** The type of an answer, from the document. */
export type Answer<V extends Verb> = Operations[V] extends {
  responses: { 200: { content: { "application/json": infer A } } };
}
  ? A
  : never;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** `verb?a=1&b=2`: parameters sorted by name, empty and false ones left out. */
export function keyOf(verb: Verb, params: Params = {}): string {
  const pairs = Object.entries(params)
    .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "")
    .flatMap(([name, value]) =>
      (Array.isArray(value) ? value : [value]).map((each) => [name, String(each)] as const),
    )
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return pairs.length ? `${verb}?${pairs.join("&")}` : verb;
}

// --- numbers ---------------------------------------------------------------------------------

/** Verbs whose answers hold values of a trace, which are shown and not reckoned with. */
const EXACT = /^(span|state)(\?|$)/;
/** An integer that may not fit a JavaScript number. A false positive costs only time. */
const LONG = /[:,[]\s*-?\d{16,}\s*[,\]}]/;

/** Parse JSON without rounding: integers that do not fit become bigint, where the browser supports it. */
function parseExact(text: string): unknown {
  if (!LONG.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_key, value: unknown, context?: { source?: string }) => {
    const rounded = typeof value === "number" && !Number.isSafeInteger(value);
    return rounded && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context!.source!) : value;
  });
}

/** Write an answer as JSON. A browser that parsed bigints can also write them. */
export function exactJson(value: unknown, indent?: number): string {
  const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON ?? String;
  return JSON.stringify(
    value,
    (_key, one: unknown) => (typeof one === "bigint" ? raw(String(one)) : one),
    indent,
  );
}

// --- answers that came with the page ---------------------------------------------------------

type Answers = Record<string, unknown>;
const parts = [...document.querySelectorAll<HTMLScriptElement>("script[data-answers]")];

/** True in a page made by `vestige export --format html`, which has no server. */
export const exported = parts.length > 0;
/** The run that it shows. */
export const exportedRun = parts.find((part) => part.dataset.run)?.dataset.run ?? "";
const opened = new Map<HTMLScriptElement, Promise<{ plain: Answers; exact: Answers }>>();

async function unpack(part: HTMLScriptElement): Promise<{ plain: Answers; exact: Answers }> {
  const packed = Uint8Array.from(atob((part.textContent ?? "").trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).text();
  const plain = JSON.parse(text) as Answers;
  return { plain, exact: LONG.test(text) ? (parseExact(text) as Answers) : plain };
}

async function embedded(key: string): Promise<unknown> {
  for (const part of parts) {
    let answers = opened.get(part);
    if (!answers) opened.set(part, (answers = unpack(part)));
    const { plain, exact } = await answers;
    if (Object.hasOwn(plain, key)) return (EXACT.test(key) ? exact : plain)[key];
  }
  throw new ApiError(404, "not_in_export", "Not included in this export");
}

/** Return the bodies of an export that contain a text: span and part, in the order of the spans. */
export async function searchExport(words: string): Promise<{ short_id: string; part: string }[]> {
  const hits = new Map<string, { short_id: string; part: string }>();
  for (const part of parts) {
    let answers = opened.get(part);
    if (!answers) opened.set(part, (answers = unpack(part)));
    for (const [key, answer] of Object.entries((await answers).plain)) {
      if (!key.startsWith("body?")) continue;
      const body = answer as { short_id?: string; which?: string; text?: string };
      if (!body.short_id || !findWords(body.text ?? "", words).length) continue;
      const hit = { short_id: body.short_id, part: body.which ?? "input" };
      hits.set(`${hit.short_id} ${hit.part}`, hit);
    }
  }
  const number = (hit: { short_id: string }): number => Number(hit.short_id.split(".s")[1]);
  return [...hits.values()].sort((one, other) => number(one) - number(other));
}

/** Read the description of an export. */
export async function aboutExport<T>(): Promise<T> {
  return (await embedded("export")) as T;
}

// --- answers of the server -------------------------------------------------------------------

async function refusal(response: Response): Promise<ApiError> {
  try {
    const answer = (await response.json()) as { error?: string; message?: string };
    return new ApiError(
      response.status,
      answer.error ?? "error",
      answer.message ?? response.statusText,
    );
  } catch {
    return new ApiError(response.status, "error", `The server answered ${response.status}.`);
  }
}

export async function get<T>(verb: Verb, params: Params = {}, signal?: AbortSignal): Promise<T> {
  const key = keyOf(verb, params);
  if (exported) return (await embedded(key)) as T;
  const response = await fetch(`/api/v1/${key}`, {
    credentials: "same-origin",
    headers: { Accept: "application/json" },
    signal: signal ?? null,
  }).catch((problem: unknown) => {
    if (!signal?.aborted) suspect();
    throw problem;
  });
  if (!response.ok) throw await refusal(response);
  return (EXACT.test(key) ? parseExact(await response.text()) : await response.json()) as T;
}

/** Sends a change to the server. */
export async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  if (exported) throw new ApiError(405, "exported", "Exports are read-only");
  const response = await fetch(`/api/v1/${path}`, {
    method,
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: body === undefined ? null : JSON.stringify(body),
  });
  if (!response.ok) throw await refusal(response);
  return (await response.json()) as T;
}

// --- what happens now ------------------------------------------------------------------------

export interface LiveEvent {
  /** `reset`: the cursor has expired, so load again. */
  type: "span" | "log" | "run" | "reset";
  data: Record<string, unknown>;
}

const AGAIN_MS = 5_000;

/** Calls `hear` for every event of the live stream, of one run or of all, until the returned function is called. */
export function listen(hear: (event: LiveEvent) => void, run?: string): () => void {
  if (exported) return () => undefined;
  let source: EventSource;
  let timer = 0;
  const take = (event: MessageEvent<string>): void => {
    try {
      hear({
        type: event.type as LiveEvent["type"],
        data: JSON.parse(event.data) as Record<string, unknown>,
      });
    } catch {
      // A truncated event: the next one covers it.
    }
  };
  const open = (): void => {
    source = new EventSource(`/api/v1/${keyOf("live", { run })}`, { withCredentials: true });
    for (const name of ["span", "log", "run", "reset"]) {
      source.addEventListener(name, take as EventListener);
    }
    source.addEventListener("error", () => {
      suspect();
      // After a refusal (too many streams) a browser gives up; after a lost connection it reconnects.
      if (source.readyState === EventSource.CLOSED) timer = window.setTimeout(again, AGAIN_MS);
    });
  };
  const again = (): void => {
    open();
    source.addEventListener("open", () => hear({ type: "reset", data: {} }), { once: true });
  };
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}
