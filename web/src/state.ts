/**
 * What is looked at: page, run, view, selected span, time range, filter. Signals, mirrored in the
 * URL's hash, so that every place is a link.
 *
 *     #/                                     home            #/?q=is:failed
 *     #/run/r7?view=tree&span=s12            a span          &from=1200&to=5000 (µs into the run)
 *     #/compare?a=r6&b=r7                    two runs
 *     #/sql?q=SELECT...                      a query
 */

import { computed, signal } from "@preact/signals";
import { exported, exportedRun } from "./api";

export type Page = "home" | "run" | "compare" | "sql";
export const VIEWS = ["transcript", "tree", "timeline", "logs", "state", "files", "metadata"] as const;
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
  if (page === "compare" || page === "sql") return { page, id: "", params };
  if (exported) return { page: "run", id: exportedRun, params: new URLSearchParams() };
  return { page: "home", id: "", params };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** An export is of one run: there is no list to begin with. */
const home = exported ? `#/run/${exportedRun}` : "#/";
export const route = signal<Route>(parse(location.hash || home));
window.addEventListener("hashchange", () => {
  route.value = parse(location.hash || home);
});

/** A link's address. Empty values are left out. */
export function href(page: Page, id = "", params: Record<string, string | number | null> = {}): string {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== "") told.set(name, String(value));
  }
  const path = page === "home" ? "#/" : page === "run" ? `#/run/${encodeURIComponent(id)}` : `#/${page}`;
  const query = told.toString();
  return query ? `${path}?${query}` : path;
}

/** A step that Back undoes. */
export function go(address: string): void {
  location.hash = address;
}

/** Change parameters of this place without a new step in the history. */
export function adjust(changes: Record<string, string | number | null>): void {
  const { page, id, params } = route.peek();
  const told: Record<string, string | number | null> = Object.fromEntries(params);
  Object.assign(told, changes);
  history.replaceState(null, "", href(page, id, told));
  route.value = parse(location.hash);
}

// --- the run page ------------------------------------------------------------------------------

export const runId = computed(() => (route.value.page === "run" ? route.value.id : ""));
export const view = computed<View>(() => {
  const wanted = route.value.params.get("view") as View | null;
  return wanted && VIEWS.includes(wanted) ? wanted : "transcript";
});

/** The selected span's number: 12 of s12. Null: none. */
export const selected = computed<number | null>(() => {
  const found = /^s(\d+)$/.exec(route.value.params.get("span") ?? "");
  return found ? Number(found[1]) : null;
});

/** The looked-at stretch of time; null: all of it. */
export const range = computed<Range | null>(() => {
  const { params } = route.value;
  const from_us = Number(params.get("from") ?? NaN);
  const to_us = Number(params.get("to") ?? NaN);
  return from_us < to_us ? { from_us, to_us } : null;
});

/** The text typed into the run's filter; each view narrows itself by it. */
export const filter = computed(() => route.value.params.get("q") ?? "");

export const select = (number: number | null): void => adjust({ span: number === null ? null : `s${number}` });
export const showView = (name: View): void => adjust({ view: name === "transcript" ? null : name });
export const setFilter = (text: string): void => adjust({ q: text || null });
export const setRange = (to: Range | null): void =>
  adjust({ from: to ? Math.round(to.from_us) : null, to: to ? Math.round(to.to_us) : null });

// --- what this browser remembers ------------------------------------------------------------------

export type Theme = "auto" | "light" | "dark";
export const theme = signal<Theme>(recall("theme", "auto") as Theme);
theme.subscribe((value) => {
  document.documentElement.dataset.theme = value;
  keep("theme", value);
});

/** A file:// page may have no storage: then nothing is remembered. */
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
    // As above.
  }
}
