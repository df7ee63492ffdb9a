/** States of a session: each snapshot, changes since the previous snapshot, and between any two. */

import { useState } from "preact/hooks";
import { exactJson, exported } from "../api";
import { Code } from "../parts/code";
import { bytes, count, offset, oneLine, visible } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { range } from "../router";
import type { Change, SnapshotRow, StateData } from "../types";
import { useAnswer } from "../use-query";
import { useRowKeys } from "./selection";
import { LineDiff } from "./span-diff";
import "./split.css";
import type { ViewProps } from "./view-props";

export default function State({ run }: ViewProps) {
  const id = run.run.short_id;
  const { data, error, again } = useAnswer<StateData>("state", { id }, run.next);
  const [chosen, pick] = useState<number | null>(null);
  const [against, setAgainst] = useState<number | null>(null);
  const rows = data?.snapshots ?? [];
  const picked = chosen ?? rows.at(-1)?.index ?? null;
  useRowKeys(
    "snapshot",
    rows.map((one) => one.index),
    picked,
    pick,
  );
  if (error) return <Failed error={error} again={again} />;
  if (!data) return <Loading what="the states" />;
  if (!data.snapshots.length) return <Empty>No state was recorded in this run.</Empty>;
  const time = range.value;
  const shown = data.snapshots.filter(
    (one) => !time || (one.at_us >= time.from_us && one.at_us <= time.to_us),
  );
  return (
    <div class="two-columns grow">
      <ol class="side scroll" aria-label="Snapshots" tabIndex={0}>
        {shown.map((one, at) => (
          <li key={one.index}>
            {one.session_id !== shown[at - 1]?.session_id && one.session_id && (
              <p class="quiet session trace">Session {oneLine(one.session_id, 60)}</p>
            )}
            <button
              type="button"
              class="plain snapshot"
              aria-pressed={one.index === picked}
              onClick={() => pick(one.index)}
            >
              <span class="rowline">
                <b>#{one.index}</b>
                <span class="quiet mono">{offset(one.at_us)}</span>
                <span class="quiet">{bytes(one.size_bytes)}</span>
              </span>
              {one.reason && <span class="trace">{oneLine(one.reason, 120)}</span>}
              <span class="quiet trace">
                {one.errors.length
                  ? oneLine(one.errors.join(" "), 160)
                  : describeChanges(one.changes)}
              </span>
            </button>
          </li>
        ))}
      </ol>
      <div class="column grow">
        {picked === null ? (
          <Empty>Select a snapshot</Empty>
        ) : (
          <>
            <div class="rowline wrap viewtools">
              <b>#{picked}</b>
              <label>
                <span class="quiet">Compare with: </span>
                <select
                  value={against ?? ""}
                  onChange={(event) =>
                    setAgainst(
                      event.currentTarget.value === "" ? null : Number(event.currentTarget.value),
                    )
                  }
                >
                  <option value="">none</option>
                  {data.snapshots
                    .filter((one) => one.index !== picked)
                    .map((one) => (
                      <option key={one.index} value={one.index}>
                        #{one.index}
                      </option>
                    ))}
                </select>
              </label>
            </div>
            {against === null ? (
              <Snapshot id={id} index={picked} />
            ) : (
              <Between id={id} from={against} to={picked} />
            )}
          </>
        )}
      </div>
    </div>
  );
}

function Snapshot({ id, index }: { id: string; index: number }) {
  const { data, error } = useAnswer<StateData>("state", { id: `${id}#${index}` });
  if (error) return <Failed error={error} />;
  if (!data?.snapshot) return <Loading />;
  const { snapshot } = data;
  return (
    <div class="scroll grow page-pad" tabIndex={0} role="region" aria-label="Snapshot">
      {snapshot.slices.map((slice, at) => (
        <details key={at} open={snapshot.slices.length < 6}>
          <summary>
            <b class="trace">{oneLine(slice.slice_type, 120)}</b>{" "}
            <span class="quiet">
              {count(slice.item_count)} {slice.item_count === 1 ? "item" : "items"}
            </span>
          </summary>
          <Code text={exactJson(slice.items ?? [], 2)} label={oneLine(slice.slice_type, 60)} />
          {slice.cut && <p class="quiet">Truncated</p>}
        </details>
      ))}
      {snapshot.text && <pre class="trace">{visible(snapshot.text.text)}</pre>}
    </div>
  );
}

function Between({ id, from, to }: { id: string; from: number; to: number }) {
  return (
    <>
      {!exported && <SliceChanges id={id} from={from} to={to} />}
      <Lines id={id} from={from} to={to} />
    </>
  );
}

/** Compare both as JSON, line by line; computed here, so that an export has it too. */
function Lines({ id, from, to }: { id: string; from: number; to: number }) {
  const one = useAnswer<StateData>("state", { id: `${id}#${from}` });
  const other = useAnswer<StateData>("state", { id: `${id}#${to}` });
  const error = one.error ?? other.error;
  if (error) return <Failed error={error} />;
  if (!one.data?.snapshot || !other.data?.snapshot) return <Loading what="both" />;
  return (
    <LineDiff
      a={asJson(one.data.snapshot)}
      b={asJson(other.data.snapshot)}
      label={`Changes from #${from} to #${to}`}
    />
  );
}

/** Slices by type, so that each line of the diff shows its place. */
const asJson = (snapshot: NonNullable<StateData["snapshot"]>): string =>
  exactJson(
    Object.fromEntries(snapshot.slices.map((slice) => [slice.slice_type, slice.items ?? []])),
  );

function SliceChanges({ id, from, to }: { id: string; from: number; to: number }) {
  const { data, error } = useAnswer<StateData>("state", { id: `${id}#${to}`, than: from });
  if (error) return <Failed error={error} />;
  if (!data?.diff) return <Loading what="both" />;
  if (!data.diff.changes.length)
    return (
      <p class="page-pad quiet">
        No changes between #{from} and #{to}
      </p>
    );
  return (
    <div class="scroll page-pad changes" tabIndex={0} role="region" aria-label="Changes">
      {data.diff.changes.map((change, at) => (
        <Changed key={at} change={change} />
      ))}
    </div>
  );
}

function Changed({ change }: { change: Change }) {
  return (
    <section class="changed">
      <h3 class="trace">
        {oneLine(change.slice_type, 120)}{" "}
        <span class="quiet">
          {[
            change.added && `${count(change.added)} added`,
            change.removed && `${count(change.removed)} removed`,
            change.changed && `${count(change.changed)} changed`,
          ]
            .filter(Boolean)
            .join(", ")}{" "}
          · {count(change.after)} {change.after === 1 ? "item" : "items"}
        </span>
      </h3>
      <pre class="trace mono">
        {change.examples.map((line, at) => (
          <div key={at} class={line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : ""}>
            {visible(line)}
          </div>
        ))}
      </pre>
    </section>
  );
}

/** Describe changes in one line: `AgentPlan changed, FileText +1`. */
function describeChanges(changes: SnapshotRow["changes"]): string {
  const described = changes.map((one) => {
    const counts = [
      one.added ? `+${one.added}` : "",
      one.removed ? `−${one.removed}` : "",
      one.changed ? "changed" : "",
    ];
    return [oneLine(one.slice_type.split(/[.:]/).pop() ?? "", 40), ...counts]
      .filter(Boolean)
      .join(" ");
  });
  return described.join(", ") || "No changes";
}
