/**
 * The route: page, run, view, selected span, time range and filter, as signals that mirror the hash
 * of the URL, so that every view has a link.
 *
 *     #/                                     home            #/?q=is:failed
 *     #/run/r7?view=tree&span=s12            a span          &from=1200&to=5000 (µs into the run)
 *     #/groups?like=r7                       failed runs by cause
 *     #/compare?a=r6&b=r7                    two runs
 *     #/sql?q=SELECT...                      a query
 * Any other page is unknown.
 */

import { computed, signal } from "@preact/signals";
import { exported, exportedRun } from "./api";

export type Page = "home" | "groups" | "run" | "compare" | "sql" | "unknown";
export const VIEWS = [
  "steps",
  "tree",
  "timeline",
  "transcript",
  "logs",
  "state",
  "files",
  "metadata",
] as const;
export type View = (typeof VIEWS)[number];
export interface Range {
  from_us: number;
  to_us: number;
}

export interface Route {
  page: Page;
  /** The run's short id on a run page, else empty. */
  id: string;
  params: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2) as [string, string?];
  const [, page = "", id = ""] = path.split("/");
  const params = new URLSearchParams(query);
  if (page === "run" && id) return { page: "run", id: decode(id), params };
  if (page === "groups" || page === "compare" || page === "sql") return { page, id: "", params };
  if (exported) return { page: "run", id: exportedRun, params: new URLSearchParams() };
  return { page: page && page !== "run" ? "unknown" : "home", id: "", params };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** An export shows one run and has no list. */
const home = exported ? `#/run/${exportedRun}` : "#/";
export const route = signal<Route>(parse(location.hash || home));
window.addEventListener("hashchange", () => {
  route.value = parse(location.hash || home);
});

/** A link's address. Empty values are left out. */
export function href(
  page: Page,
  id = "",
  params: Record<string, string | number | null> = {},
): string {
  const filled = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== "") filled.set(name, String(value));
  }
  const path =
    page === "home" ? "#/" : page === "run" ? `#/run/${encodeURIComponent(id)}` : `#/${page}`;
  const query = filled.toString();
  return query ? `${path}?${query}` : path;
}

/** Navigate with a new history entry. */
export function go(address: string): void {
  location.hash = address;
}

type Changes = Record<string, string | number | null>;

function changed(changes: Changes): string {
  const { page, id, params } = route.peek();
  return href(page, id, { ...Object.fromEntries(params), ...changes });
}

/** Change parameters without a new history entry. */
export function adjust(changes: Changes): void {
  history.replaceState(null, "", changed(changes));
  route.value = parse(location.hash);
}

/** Steps that follow each other faster than this are one entry of the history. */
const STEP_MS = 700;
let lastVisit = 0;

/** Change parameters with a new history entry, so that Back returns to what was shown. */
export function visit(changes: Changes): void {
  const address = changed(changes);
  if (address === location.hash) return;
  const now = Date.now();
  if (now - lastVisit < STEP_MS) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  lastVisit = now;
  route.value = parse(location.hash);
}

// --- the run page ------------------------------------------------------------------------------

export const runId = computed(() => (route.value.page === "run" ? route.value.id : ""));
/** The run that was shown last, whose row a list returns to. */
let last = runId.peek();
route.subscribe(() => {
  last = runId.peek() || last;
});
export const lastRun = (): string => last;

export const view = computed<View>(() => {
  const requested = route.value.params.get("view") as View | null;
  return requested && VIEWS.includes(requested) ? requested : "steps";
});

/** The selected span's number: 12 of s12. Null: none. */
export const selected = computed<number | null>(() => {
  const found = /^s(\d+)$/.exec(route.value.params.get("span") ?? "");
  return found ? Number(found[1]) : null;
});

/** The selected time range; null means the full run. */
export const range = computed<Range | null>(() => {
  const { params } = route.value;
  const from_us = Number(params.get("from") ?? NaN);
  const to_us = Number(params.get("to") ?? NaN);
  return from_us < to_us ? { from_us, to_us } : null;
});

/** The text typed into the run's filter; each view narrows itself by it. */
export const filter = computed(() => route.value.params.get("q") ?? "");

/** The open tab of the span pane; empty means the default of the span's type. */
export const tab = computed(() => route.value.params.get("tab") ?? "");

/** The words that are searched in the run. */
export const searched = computed(() => route.value.params.get("find") ?? "");

/** How the transcript is folded; null is the default of the run. */
export const folded = computed<boolean | null>(() => {
  const named = route.value.params.get("fold");
  return named === "all" ? true : named === "none" ? false : null;
});
/** True: the transcript has only the answers of the model, and its tool calls. */
export const answersOnly = computed(() => route.value.params.get("only") === "answers");

/** Views that have the span pane beside them; the other views take its place. */
export const LISTS: readonly View[] = ["steps", "tree", "timeline"];

export const showTab = (name: string): void => visit({ tab: name || null });
export const select = (number: number | null): void =>
  visit({ span: number === null ? null : `s${number}` });
/** Select a span and show its pane, from any view. */
export const openSpan = (number: number, part?: string): void => {
  const changes: Changes = { span: `s${number}` };
  if (!LISTS.includes(view.peek())) changes.view = null;
  if (part !== undefined) changes.tab = part || null;
  visit(changes);
};
export const showView = (name: View): void => visit({ view: name === "steps" ? null : name });
export const setFolded = (on: boolean): void => visit({ fold: on ? "all" : "none" });
export const setAnswersOnly = (on: boolean): void => visit({ only: on ? "answers" : null });
export const setFilter = (text: string): void => adjust({ q: text || null });
export const setRange = (to: Range | null): void =>
  adjust({ from: to ? Math.round(to.from_us) : null, to: to ? Math.round(to.to_us) : null });

/**
 * The tab of the span pane that shows this part of a span, where a search has found a text: the
 * messages of a model call if they have it, else the exact bytes.
 */
export function tabOfPart(part: string): string | null {
  if (part === "input" || part === "output") return `hit-${part}`;
  return part === "attrs" ? "attributes" : null;
}

// --- kept in this browser ------------------------------------------------------------------

export type Theme = "auto" | "light" | "dark";
export const theme = signal<Theme>(recall("theme", "auto") as Theme);
theme.subscribe((value) => {
  document.documentElement.dataset.theme = value;
  keep("theme", value);
});

/** The theme after this one: the first change from `auto` is visible, whatever the system has. */
export function nextTheme(now: Theme): Theme {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const other = system === "dark" ? "light" : "dark";
  return now === "auto" ? other : now === other ? system : "auto";
}

/** Read a stored setting; a file:// page may have no storage. */
export function recall(name: string, otherwise: string): string {
  try {
    return localStorage.getItem(`vestige.${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keep(name: string, value: string): void {
  try {
    localStorage.setItem(`vestige.${name}`, value);
  } catch {
    // A file:// page may have no storage.
  }
}
