/** Placeholders for data that is loading, failed or empty. */

import type { ComponentChildren } from "preact";
import type { ApiError } from "../api";

export function Loading({ what = "" }: { what?: string }) {
  return (
    <div class="empty" role="status">
      Loading{what && ` ${what}`}…
    </div>
  );
}

export function Failed({ error, again }: { error: ApiError; again?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <span class="trace">{error.message}</span>
      {again && (
        <button type="button" class="plain" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}
