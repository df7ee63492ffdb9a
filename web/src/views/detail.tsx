/** The pane of the selected span. */

import { useAnswer } from "../answers";
import type { RunModel } from "../model";
import { Code } from "../parts/code";
import { Failed, Loading } from "../parts/state";
import { select } from "../state";
import type { SpanData } from "../types";

export default function Detail({ run, index }: { run: RunModel; index: number }) {
  const { data, error, again } = useAnswer<SpanData>("span", { id: run.shortId(index) });
  return (
    <>
      <div class="rowline pane-head">
        <h2 class="grow cut">{run.name(index)}</h2>
        <span class="mono quiet">{run.shortId(index)}</span>
        <button type="button" class="plain" aria-label="Close" onClick={() => select(null)}>✕</button>
      </div>
      {error && <Failed error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && <Code text={JSON.stringify(data, null, 2)} label="Span" class="grow" />}
    </>
  );
}
