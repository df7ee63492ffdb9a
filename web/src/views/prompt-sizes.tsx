/** The prompt by source: the size of each, as a bar and a table. */

import { bytes, count, oneLine, percent } from "../parts/format";
import { Failed, Loading } from "../parts/placeholders";
import type { SegmentsData } from "../types";
import { useAnswer } from "../use-query";

export function Segments({ span }: { span: string }) {
  const { data, error } = useAnswer<SegmentsData>("segments", { id: span });
  if (error) return <Failed error={error} />;
  if (!data) return <Loading what="the prompt" />;
  return (
    <div
      class="column grow scroll segments"
      tabIndex={0}
      role="region"
      aria-label="Prompt breakdown"
    >
      <p class="quiet">
        {bytes(data.request_bytes)} ·{" "}
        {data.basis === "recorded" ? "reported by the program" : "inferred from the request"}
        {data.cache.read_tokens !== null &&
          ` · ${count(data.cache.read_tokens)} tokens read from the cache`}
      </p>
      <div
        class="segment-bar"
        role="img"
        aria-label={data.contributors
          .map((one) => `${oneLine(one.contributor, 60)} ${percent(one.share)}`)
          .join(", ")}
      >
        {data.segments.map((segment, at) => (
          <span
            key={at}
            class={`segment kind-${at % 6}`}
            style={{ flexGrow: segment.size_bytes }}
            title={`${oneLine(segment.contributor, 60)} · ${bytes(segment.size_bytes)}`}
          />
        ))}
      </div>
      <table class="plain">
        <thead>
          <tr>
            <th>Source</th>
            <th class="wide">Kind</th>
            <th class="right">Share</th>
            <th class="right">Bytes</th>
            <th class="right">Est. tokens</th>
          </tr>
        </thead>
        <tbody>
          {data.contributors.map((one) => (
            <tr key={one.contributor}>
              <td class="trace">
                {oneLine(one.contributor, 80)}
                {one.count > 1 && <span class="quiet"> × {one.count}</span>}
              </td>
              <td class="quiet wide">{oneLine(one.kind, 20)}</td>
              <td class="right">{percent(one.share)}</td>
              <td class="right">{count(one.size_bytes)}</td>
              <td class="right">{count(one.tokens_estimated)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <h3>In request order</h3>
      <table class="plain">
        <tbody>
          {data.segments.map((one, at) => (
            <tr key={at}>
              <td class="nowrap trace">
                {oneLine(one.contributor, 40)}
                {one.cached && <span class="badge ok">cached</span>}
              </td>
              <td class="right nowrap quiet">{bytes(one.size_bytes)}</td>
              <td class="trace quiet">{oneLine(one.preview, 200)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
