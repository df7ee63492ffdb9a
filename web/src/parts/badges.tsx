/** Badges with an icon and a word: outcome, severity, type of span. */

const OUTCOMES = new Map<string, [string, string, string]>(
  Object.entries({
    ok: ["ok", "✓", "Succeeded"],
    error: ["bad", "✕", "Failed"],
    timeout: ["warn", "◷", "Timed out"],
    cancelled: ["", "⊘", "Cancelled"],
    interrupted: ["gone", "◼", "Crashed"],
    running: ["live", "●", "Running"],
    unknown: ["", "?", "Unknown"],
    open: ["live", "●", "Open"],
  }),
);

/** The word for an outcome, as the badge has it. */
export const outcomeWord = (value: string): string => OUTCOMES.get(value)?.[2] ?? value;

/** A run's outcome or a span's status; null is an open span. */
export function Status({ value, brief = false }: { value: string | null; brief?: boolean }) {
  const [mood, sign, word] = OUTCOMES.get(value ?? "open") ?? ["", "·", String(value).slice(0, 20)];
  return (
    <span class={`badge ${mood}`} title={word}>
      <span class="sign" aria-hidden="true">
        {sign}
      </span>
      <span class={brief ? "sr" : ""}>{word}</span>
    </span>
  );
}

const SEVERITIES: Record<string, [string, string]> = {
  error: ["bad", "✕"],
  warning: ["warn", "▲"],
  hint: ["", "i"],
};

export function Severity({ value }: { value: string }) {
  const [mood, sign] = SEVERITIES[value] ?? ["", "·"];
  return (
    <span class={`badge ${mood}`}>
      <span aria-hidden="true">{sign}</span> {value}
    </span>
  );
}

const KINDS = ["llm", "tool", "step", "agent", "request"];
export const kindClass = (type: string): string => `k-${KINDS.includes(type) ? type : "other"}`;

export function Kind({ type }: { type: string }) {
  return <span class={`kind ${kindClass(type)}`}>{type}</span>;
}

export function Level({ value }: { value: string }) {
  const mood = value === "error" ? "bad" : value === "warn" ? "warn" : "";
  return <span class={`badge ${mood}`}>{value}</span>;
}
