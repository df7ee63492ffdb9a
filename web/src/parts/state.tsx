/** What stands in the place of data: still asked for, refused, or none. */

import type { ComponentChildren } from "preact";
import type { ApiError } from "../api";

export function Loading({ what = "" }: { what?: string }) {
  return <div class="empty" role="status">Reading{what && ` ${what}`}…</div>;
}

export function Failed({ error, again }: { error: ApiError; again?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <span class="trace">{error.message}</span>
      {again && <button type="button" class="plain" onClick={again}>Try again</button>}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}
