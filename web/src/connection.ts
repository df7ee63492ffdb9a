/** Whether the server answers. A request that fails starts a check, which repeats until it does. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

const AGAIN_MS = 2_000;
const CHECK_MS = 5_000;
const RETRY_MS = 500;

/** True while the server does not answer. */
export const lost = signal(false);
/** Counts the times that the server was found to answer after a request had failed. */
const returns = signal(0);
let checking = false;

/** Check whether the server still answers, after a request or a stream has failed. */
export function suspect(): void {
  if (checking) return;
  checking = true;
  void check();
}

async function check(): Promise<void> {
  try {
    const response = await fetch("/healthz", { signal: AbortSignal.timeout(CHECK_MS) });
    // A busy server answers 503: it is there.
    lost.value = response.status === 0;
    checking = false;
    // Not at once: a request may fail for a reason of its own, again and again.
    setTimeout(() => returns.value++, RETRY_MS);
  } catch {
    lost.value = true;
    setTimeout(() => void check(), AGAIN_MS);
  }
}

/** Call `again` when the server answers again, if the last request of this component failed. */
export function useReturn(failed: boolean, again: () => void): void {
  const turn = returns.value;
  useEffect(() => {
    if (turn && failed) again();
  }, [turn]);
}
