/** The head of a run: its task, its outcome, one cause in one sentence, and gaps in the recording. */

import { useState } from "preact/hooks";
import { exported } from "../api";
import type { RunModel } from "../model";
import { MoreLikeThis } from "../pages/failures";
import { Severity, Status } from "../parts/badges";
import { count, dateTime, durationMs, moment, oneLine, price, short } from "../parts/format";
import { Neighbours } from "../parts/neighbours";
import { RunNotes } from "../parts/notes";
import { href, openSpan, showView } from "../router";
import type { Finding, Losses, OverviewData, RunRow } from "../types";
import { type Lineage, LineageLine } from "./lineage";

interface Props {
  run: RunModel;
  overview: OverviewData | null;
  lineage: Lineage | null;
  paused: boolean;
  pause: (on: boolean) => void;
}

export function RunSummary({ run, overview, lineage, paused, pause }: Props) {
  const info = run.run;
  const [all, setAll] = useState(false);
  const findings = overview ? otherFindings(run, overview) : [];
  const title = oneLine(overview?.title ?? "", 160);
  const name = oneLine(info.name, 120) || "Untitled";
  return (
    <section class="summary" aria-label="Summary" tabIndex={0}>
      <div class="rowline summary-title">
        <h1 class="trace cut">{title || name}</h1>
        <span class="quiet nowrap cut grow">
          {title && title !== name ? `${name} · ` : ""}
          {info.short_id}
        </span>
        <Neighbours key={info.short_id} run={info.short_id} />
      </div>
      <div class="rowline wrap summary-facts">
        <Status value={info.outcome} />
        <span class="quiet" title={moment(info.started_at)}>
          {facts(run, overview).join(" · ")}
        </span>
        <RunNotes run={info.short_id} open={() => showView("metadata")} />
        {missing(run.losses).map((text) => (
          <span class="badge warn" key={text}>
            {text}
          </span>
        ))}
        {info.outcome === "running" && (
          <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>
            {paused ? "Resume updates" : "Pause updates"}
          </button>
        )}
      </div>
      <LineageLine run={run} lineage={lineage} />
      {overview && <SameProgram runs={overview.same_program} />}
      {overview && (
        <Cause
          run={run}
          overview={overview}
          more={findings.length}
          all={all}
          toggle={() => setAll(!all)}
        />
      )}
      {all && findings.length > 0 && (
        <ul class="findings" aria-label="Findings">
          {findings.map((finding, at) => (
            <Found key={at} run={run} finding={finding} />
          ))}
        </ul>
      )}
    </section>
  );
}

const SAME_PROGRAM_SHOWN = 6;

/** Links to the other runs of the program. */
function SameProgram({ runs }: { runs: RunRow[] }) {
  if (!runs.length || exported) return null;
  return (
    <div class="rowline wrap">
      <span class="quiet">Same program:</span>
      {runs.slice(0, SAME_PROGRAM_SHOWN).map((run) => (
        <a key={run.short_id} href={href("run", run.short_id)}>
          <Status value={run.outcome} brief /> {run.short_id} {oneLine(run.name, 40)}
        </a>
      ))}
      {runs.length > SAME_PROGRAM_SHOWN && (
        <span class="quiet">and {count(runs.length - SAME_PROGRAM_SHOWN)} more</span>
      )}
    </div>
  );
}

/** The findings other than the one that is shown as the cause. */
function otherFindings(run: RunModel, { cause, findings }: OverviewData): Finding[] {
  const lead = findings.findIndex(
    (finding) => finding.kind === cause?.kind && shortCause(run, finding) === cause.span,
  );
  return findings.filter((_, at) => at !== lead);
}

function shortCause(run: RunModel, finding: Finding): string | null {
  const index = finding.cause ? run.byId.get(finding.cause) : undefined;
  return index === undefined ? null : run.shortId(index);
}

function facts(run: RunModel, overview: OverviewData | null): string[] {
  const info = run.run;
  const steps = overview?.steps.length ?? 0;
  const models = new Set(overview?.steps.flatMap((step) => (step.model ? [step.model] : [])));
  const [model] = models;
  return [
    steps ? `${count(steps)} ${steps === 1 ? "step" : "steps"}` : "",
    `${count(info.span_count)} ${info.span_count === 1 ? "span" : "spans"}`,
    info.duration_ms ? durationMs(info.duration_ms) : "",
    dateTime(info.started_at),
    info.tokens > 0 ? `${short(info.tokens)} tokens` : "",
    costOf(overview),
    models.size > 1 ? `${models.size} models` : model ? oneLine(model, 60) : "",
  ].filter(Boolean);
}

/** The cost; a `+` if some calls have no price. */
export function costOf(overview: OverviewData | null): string {
  if (!overview || overview.cost_usd === null) return "";
  return price(overview.cost_usd, !overview.unpriced_models?.length);
}

/** True if a stamp begins with the cause: both are often of one finding. */
const repeats = (stamp: string, sentence: string): boolean =>
  stamp.toLowerCase().startsWith(sentence.toLowerCase().slice(0, 24));

/** A longer sentence ends in names and values, which ` in step 3` would seem to belong to. */
const PLACED_MAX = 60;

interface CauseProps {
  run: RunModel;
  overview: OverviewData;
  /** How many findings there are beside the cause. */
  more: number;
  all: boolean;
  toggle: () => void;
}

function Cause({ run, overview, more, all, toggle }: CauseProps) {
  const { cause, stamps } = overview;
  const good = exported ? null : overview.good_run;
  if (!cause && !stamps.length) return null;
  const index = run.ofShortId(cause?.span);
  const sentence = cause ? oneLine(cause.sentence, 200) : oneLine(stamps[0]!, 300);
  const isShort = sentence.length <= PLACED_MAX;
  const place = cause?.step != null ? ` in step ${cause.step}` : "";
  const target =
    cause?.step != null ? `step ${cause.step}` : `s${index === undefined ? "" : run.number(index)}`;
  return (
    <div class={`cause ${cause ? cause.severity : "error"}`}>
      <span class="cause-text">
        <strong class="trace">
          {sentence}
          {isShort ? place : ""}.
        </strong>{" "}
        {!isShort && place && <span>In step {cause?.step}. </span>}
        <span class="trace" title={oneLine(cause?.detail ?? "", 2_000)}>
          {oneLine(cause?.detail ?? "", 300)}
        </span>
        {cause &&
          stamps
            .filter((stamp) => !repeats(stamp, cause.sentence))
            .slice(0, 2)
            .map((stamp) => (
              <span class="trace" key={stamp}>
                {" "}
                {oneLine(stamp, 300)}
              </span>
            ))}
      </span>
      {index !== undefined && (
        <button type="button" class="plain link" onClick={() => goToFailure(run, index)}>
          Go to {target}
        </button>
      )}
      {good && (
        <a class="nowrap" href={href("compare", "", { a: good.short_id, b: run.run.short_id })}>
          Compare with {good.short_id}
        </a>
      )}
      {!exported && run.run.outcome !== "running" && cause?.severity !== "hint" && (
        <MoreLikeThis run={run.run.short_id} />
      )}
      {more > 0 && (
        <button type="button" class="plain link quiet" aria-expanded={all} onClick={toggle}>
          {all ? "Show less" : `${count(more)} more ${more === 1 ? "finding" : "findings"}`}
        </button>
      )}
    </div>
  );
}

/** Open a span at its first tab, which shows how it failed, whichever tab was open before. */
const goToFailure = (run: RunModel, index: number): void => openSpan(run.number(index), "");

function Found({ run, finding }: { run: RunModel; finding: Finding }) {
  const cause = finding.cause ? run.byId.get(finding.cause) : undefined;
  return (
    <li class="finding">
      <Severity value={finding.severity} />
      <span class="grow trace" title={oneLine(finding.kind, 60)}>
        {oneLine(finding.message, 300)}
      </span>
      {cause !== undefined && (
        <button type="button" class="plain link" onClick={() => goToFailure(run, cause)}>
          Go to s{run.number(cause)}
        </button>
      )}
    </li>
  );
}

/** Describe what is redacted, truncated or missing. */
function missing(losses: Losses): string[] {
  const secrets = Object.values(losses.redactions).reduce((sum, times) => sum + times, 0);
  const counts: [number, string][] = [
    [secrets, secrets === 1 ? "secret redacted" : "secrets redacted"],
    [losses.bodies_cut, "payloads truncated"],
    [losses.bodies_lost, "payloads missing"],
    [losses.records_dropped, "records dropped"],
    [losses.records_missing, "records missing"],
    [losses.lines_malformed, "unreadable log lines"],
  ];
  const some = counts
    .filter(([times]) => times > 0)
    .map(([times, what]) => `${count(times)} ${what}`);
  return losses.not_sampled ? [...some, "Not sampled: payloads were not recorded"] : some;
}
