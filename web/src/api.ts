/**
 * The one door to data. An exported page carries the answers it needs; a served page asks its server.
 *
 *     const run = await get<OutlineData>("outline", { id: "r7" });
 *
 * The same question always has the same key (`keyOf`), which is how an export finds its answers:
 * so ask with short ids (r7, r7.s12), and leave out what is the default.
 */

import type { paths } from "./generated/openapi";

type Operations = { [P in keyof paths as P extends `/api/v1/${infer V}` ? V : never]: paths[P]["get"] };
/** What can be asked: the paths of the server's OpenAPI document. */
export type Verb = keyof Operations;
type Query<V extends Verb> = NonNullable<Operations[V] extends { parameters: { query?: infer Q } } ? Q : never>;
type Names<V extends Verb> = V extends Verb ? keyof Query<V> : never;
/** Parameters by the names that the document has. */
export type Params = { [N in Names<Verb>]?: string | number | boolean | null | undefined };
/** What the document says of an answer. */
export type Told<V extends Verb> = Operations[V] extends { responses: { 200: { content: { "application/json": infer A } } } } ? A : never;

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
  const told = Object.entries(params)
    .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "")
    .map(([name, value]) => [name, String(value)] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return told.length ? `${verb}?${told.join("&")}` : verb;
}

// --- numbers ---------------------------------------------------------------------------------

/** Verbs whose answers hold values of a trace, which are shown and not reckoned with. */
const EXACT = /^(span|state)(\?|$)/;
/** A whole number that may be longer than a number here can be. A false alarm costs time only. */
const LONG = /[:,[]\s*-?\d{16,}\s*[,\]}]/;

/** As it was written: a whole number that would be rounded is a bigint, where the browser tells us. */
function parseExact(text: string): unknown {
  if (!LONG.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_key, value: unknown, context?: { source?: string }) => {
    const rounded = typeof value === "number" && !Number.isSafeInteger(value);
    return rounded && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context!.source!) : value;
  });
}

/** JSON of what an answer held. A browser that gave us bigints can write them, too. */
export function exactJson(value: unknown, indent?: number): string {
  const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON ?? String;
  return JSON.stringify(value, (_key, one: unknown) => (typeof one === "bigint" ? raw(String(one)) : one), indent);
}

// --- answers that came with the page ---------------------------------------------------------

type Answers = Record<string, unknown>;
const parts = [...document.querySelectorAll<HTMLScriptElement>("script[data-answers]")];

/** True in a page made by `vestige export --format html`: no server, nothing to ask. */
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
  throw new ApiError(404, "not_in_export", "This was not taken into the export.");
}

/** What an export says about itself. */
export async function aboutExport<T>(): Promise<T> {
  return (await embedded("export")) as T;
}

// --- answers of the server -------------------------------------------------------------------

async function refusal(response: Response): Promise<ApiError> {
  try {
    const told = (await response.json()) as { error?: string; message?: string };
    return new ApiError(response.status, told.error ?? "error", told.message ?? response.statusText);
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
  });
  if (!response.ok) throw await refusal(response);
  return (EXACT.test(key) ? parseExact(await response.text()) : await response.json()) as T;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  if (exported) throw new ApiError(405, "exported", "An exported page cannot be written to.");
  const response = await fetch(`/api/v1/${path}`, {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await refusal(response);
  return (await response.json()) as T;
}

// --- what happens now ------------------------------------------------------------------------

export interface LiveEvent {
  /** `reset`: the place to go on from is gone, load anew. */
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
      hear({ type: event.type as LiveEvent["type"], data: JSON.parse(event.data) as Record<string, unknown> });
    } catch {
      // A torn event: the next one tells the same.
    }
  };
  const open = (): void => {
    source = new EventSource(`/api/v1/${keyOf("live", { run })}`, { withCredentials: true });
    for (const name of ["span", "log", "run", "reset"]) {
      source.addEventListener(name, take as EventListener);
    }
    source.addEventListener("error", () => {
      // Refused (too many streams, say), a browser gives up for good; cut off, it comes back by itself.
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
