/** Format numbers, sizes, durations and times. Pure. */

const number = new Intl.NumberFormat("en");

export const count = (value: number | null | undefined): string =>
  value == null ? "" : number.format(value);

/** 1,234 -> 1.2k: for columns. */
export function short(value: number | null | undefined): string {
  if (value == null) return "";
  if (Math.abs(value) < 1000) return String(value);
  for (const [size, unit] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (Math.abs(value) >= size) {
      const part = value / size;
      return `${part < 10 ? part.toFixed(1).replace(/\.0$/, "") : Math.round(part)}${unit}`;
    }
  }
  return String(value);
}

export function duration(us: number | null | undefined): string {
  if (us == null) return "";
  if (us < 1) return "0";
  if (us < 1000) return `${Math.round(us)} µs`;
  const ms = us / 1000;
  if (ms < 999.5) return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 59.95) return `${s < 9.995 ? s.toFixed(2) : s.toFixed(1)} s`;
  const seconds = Math.round(s);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48
    ? `${hours} h ${minutes % 60} min`
    : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const durationMs = (ms: number | null | undefined): string =>
  ms == null ? "" : duration(ms * 1000);

export function bytes(value: number | null | undefined): string {
  if (value == null) return "";
  if (value < 1000) return `${value} B`;
  if (value < 1e6) return `${(value / 1e3).toFixed(value < 1e4 ? 1 : 0)} kB`;
  if (value < 1e9) return `${(value / 1e6).toFixed(1)} MB`;
  return `${(value / 1e9).toFixed(2)} GB`;
}

/** A quantile, known as an upper bound: durations are counted in ranges of at most 25 %. */
export function upTo(ms: number | null): string {
  if (ms === null) return "–";
  return ms < 0.1 ? "< 0.1 ms" : `≤ ${durationMs(ms)}`;
}

export function cost(usd: number | null | undefined): string {
  if (usd == null) return "";
  if (usd === 0) return "$0";
  if (usd < 0.0001) return "<$0.0001";
  if (usd < 0.01) return `$${usd.toFixed(4)}`;
  return `$${usd.toFixed(usd < 10 ? 3 : 2)}`;
}

/** A cost with two decimals; "+" if some calls have no price. */
export function price(usd: number | null | undefined, complete: boolean): string {
  if (usd == null) return "";
  const text = usd === 0 || usd >= 0.01 ? (usd === 0 ? "$0" : `$${usd.toFixed(2)}`) : cost(usd);
  return complete ? text : `${text}+`;
}

export const percent = (part: number): string => `${Math.round(part * 100)} %`;

/** `at`: ISO. */
export function ago(at: string, nowMs = Date.now()): string {
  const s = Math.max(0, nowMs - Date.parse(at)) / 1000;
  if (s < 5) return "just now";
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 86400 * 60) return `${Math.floor(s / 86400)} d ago`;
  const date = new Date(at);
  return `${date.getDate()} ${date.toLocaleString("en", { month: "short" })} ${date.getFullYear()}`;
}

/** 17 Nov 2026, 14:58, in the reader's zone. */
export function dateTime(iso: string): string {
  const at = new Date(iso);
  const month = at.toLocaleString("en", { month: "short" });
  const time = `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
  return `${at.getDate()} ${month} ${at.getFullYear()}, ${time}`;
}

/** 2026-11-16 01:33:56.123, in the reader's zone. */
export function moment(iso: string | number): string {
  const at = new Date(iso);
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** Time into a run: +1.234 s. */
export function offset(us: number): string {
  if (us < 0) return `-${offset(-us).slice(1)}`; // before the run itself began
  const s = us / 1e6;
  if (s < 60) return `+${s.toFixed(3)}`;
  const minutes = Math.floor(s / 60);
  const rest = (s % 60).toFixed(1).padStart(4, "0");
  return minutes < 60
    ? `+${minutes}:${rest}`
    : `+${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

/**
 * Text from a trace, made safe to look at: control characters, those that turn the direction of
 * writing and invisible ones that a model reads become visible. Line breaks, CR LF too, and tabs stay.
 */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones to show
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\u061c\u00ad\u180e\u{e0000}-\u{e007f}]/gu,
    (one) => {
      const code = one.codePointAt(0)!;
      // By number: few fonts have pictures of control characters.
      return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    },
  );
}

/** One line of at most `most` characters. */
export function oneLine(text: string, most = 300): string {
  const line = visible(text.slice(0, most + 1).replace(/\s+/g, " "));
  return text.length > most ? `${line.slice(0, most)}…` : line;
}
