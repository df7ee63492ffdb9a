/** Whether the server answers. A request that fails starts a check, which repeats until it does. */

import { signal } from "@preact/signals";

const AGAIN_MS = 2_000;
const CHECK_MS = 5_000;

/** True while the server does not answer. */
export const lost = signal(false);
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
  } catch {
    lost.value = true;
    setTimeout(() => void check(), AGAIN_MS);
  }
}
