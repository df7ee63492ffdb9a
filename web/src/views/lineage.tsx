/** Where a run came from, what was forked from it, and the command that forks it at a step. */

import type { Answer } from "../api";
import { exported } from "../api";
import type { RunModel } from "../model";
import { Status } from "../parts/badges";
import { Copy } from "../parts/copy";
import { count, oneLine } from "../parts/format";
import { Menu } from "../parts/menu";
import { href } from "../router";
import { useAnswer } from "../use-query";
import "./lineage.css";

export type Lineage = Answer<"lineage">;
type Fork = Lineage["forks"][number];

/**
 * Null while it is loading, and in an export, which has one run only. It is read when the page is
 * there: `isReady`.
 */
export function useLineage(run: RunModel, isReady: boolean): Lineage | null {
  const params = exported || !isReady ? null : { id: run.run.short_id };
  return useAnswer<Lineage>("lineage", params, run.run.outcome).data;
}

const changesOf = (changes: string[]): string => oneLine(changes.join(", "), 120);

/** One line of the summary: the origin with a link to the comparison, and the forks. */
export function LineageLine({ run, lineage }: { run: RunModel; lineage: Lineage | null }) {
  if (!lineage || (!lineage.origin && !lineage.forks.length)) return null;
  const { origin, forks, changes } = lineage;
  const span = origin?.forked_at?.split(".")[1] ?? "";
  return (
    <div class="rowline wrap lineage">
      {origin && (
        <span>
          <Branch /> {origin.forked_at ? "Forked from" : "Replay of"}{" "}
          <a href={href("run", origin.run, { span })}>{origin.forked_at ?? origin.run}</a>
          {changes.length > 0 && <span class="mono trace"> {changesOf(changes)}</span>}{" "}
          <a class="link" href={href("compare", "", { a: origin.run, b: run.run.short_id })}>
            Compare with {origin.run}
          </a>
        </span>
      )}
      {forks.length > 0 && (
        <span>
          <Branch /> {count(forks.length)}{" "}
          {forks.length === 1 ? "fork or replay" : "forks and replays"}:{" "}
          {forks.slice(0, 6).map((fork) => (
            <ForkLink key={fork.run} fork={fork} />
          ))}
        </span>
      )}
    </div>
  );
}

/** A line that parts in two. */
export const Branch = () => (
  <svg class="branch" viewBox="0 0 12 14" aria-hidden="true">
    <path d="M3 3v8M3 8c0-3 6-1 6-5" />
    <circle cx="3" cy="2" r="1.5" />
    <circle cx="3" cy="12" r="1.5" />
    <circle cx="9" cy="2" r="1.5" />
  </svg>
);

export function ForkLink({ fork, detailed = false }: { fork: Fork; detailed?: boolean }) {
  return (
    <a
      class="fork"
      href={href("run", fork.run)}
      title={fork.changes.join("\n")}
      onClick={(event) => event.stopPropagation()}
    >
      <Status value={fork.outcome} brief /> <span class="mono">{fork.run}</span>
      {detailed && fork.changes.length > 0 && (
        <span class="cut trace quiet"> {changesOf(fork.changes)}</span>
      )}
    </a>
  );
}

/** Forks of the run by the span at which they were made. */
export function forksAt(lineage: Lineage | null, spans: Set<string>): Fork[] {
  return lineage?.forks.filter((fork) => fork.forked_at && spans.has(fork.forked_at)) ?? [];
}

interface ForkMenuProps {
  span: string;
  /** False: the fork begins at the next model call. */
  isCall: boolean;
  lineage: Lineage | null;
}

/** "Fork from here": the command, to copy. */
export function ForkMenu({ span, isCall, lineage }: ForkMenuProps) {
  if (!lineage?.can_fork) return null;
  const [run = "", number = ""] = span.split(".");
  const program = lineage.command ?? "python agent.py";
  const fork = `vestige replay ${run} --until ${number} -- ${program}`;
  const changed = `vestige replay ${run} --until ${number} --set 'messages[0].content=@prompt.txt' -- ${program}`;
  const recorded = `vestige replay ${run} --until ${number} --tools recorded -- ${program}`;
  return (
    <Menu label="Fork" name="Fork from here" align="right">
      {() => (
        <div class="choices fork-panel">
          <p class="quiet">
            {isCall
              ? "Model calls before this step are answered from the recording; this one and all later calls are sent."
              : "The fork begins at the next model call: it and all later ones are sent, those before it are answered from the recording."}{" "}
            The new run is recorded beside this one.
          </p>
          <b>Fork from here</b>
          <Command text={fork} />
          <b>With a changed request</b>
          <Command text={changed} />
          <b>With recorded results of tools</b>
          <Command text={recorded} />
          <p class="quiet">
            <code>--trials 5</code> repeats it with and without the change.
          </p>
        </div>
      )}
    </Menu>
  );
}

function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code class="trace">{oneLine(text, 600)}</code>
      <Copy text={text} />
    </div>
  );
}
