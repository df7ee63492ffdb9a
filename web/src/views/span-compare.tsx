/** A menu of a span: the calls of its kind to compare it with, in this run or in others. */

import { useState } from "preact/hooks";
import type { RunModel } from "../model";
import { Status } from "../parts/badges";
import { ago, oneLine } from "../parts/format";
import { Menu } from "../parts/menu";
import { go, href } from "../router";
import type { OverviewData } from "../types";
import { ask } from "../use-query";
import { useSameTask } from "./same-task";
import { mainSpan, type StepIndex, spanTitle } from "./step-index";

interface Props {
  run: RunModel;
  index: number;
  steps: StepIndex;
}

/** Longer lists are narrowed by the filter. */
const SHOWN = 200;
const RUNS_SHOWN = 10;

export function CompareSpan(props: Props) {
  return (
    <Menu label="Compare" name="Compare with another span" align="right">
      {(close) => <Choices {...props} close={close} />}
    </Menu>
  );
}

/** The address of two spans side by side, the earlier one first. */
export function compareHref(run: RunModel, one: number, other: number): string {
  const [a, b] = run.start(one) <= run.start(other) ? [one, other] : [other, one];
  return href("compare", "", { a: run.shortId(a), b: run.shortId(b) });
}

interface Choice {
  index: number;
  place: string;
  text: string;
}

/** The other spans of the same kind: model calls, calls of the same tool, or agents. */
export function comparable({ run, index, steps }: Props): Choice[] {
  const type = run.type(index);
  const found: Choice[] = [];
  for (let at = 0; at < run.count; at++) {
    if (at === index || run.type(at) !== type) continue;
    if (type === "tool" && run.name(at) !== run.name(index)) continue;
    const step = steps.of(run.shortId(at));
    found.push({
      index: at,
      place: step ? `Step ${step.number}` : `s${run.number(at)}`,
      text: (type === "llm" && step?.title) || run.label(at) || spanTitle(run, at, steps),
    });
  }
  return found;
}

function Choices({ run, index, steps, close }: Props & { close: () => void }) {
  const [words, setWords] = useState("");
  const needle = words.trim().toLowerCase();
  const all = comparable({ run, index, steps });
  const found = all.filter(({ place, text }) => `${place} ${text}`.toLowerCase().includes(needle));
  const kind = run.type(index) === "llm" ? "model calls" : "spans of this kind";
  return (
    <div class="choices span-choices">
      <b>Compare with another step of this run</b>
      {all.length > 8 && (
        <input
          type="search"
          aria-label="Filter the steps"
          placeholder="Step or text"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      )}
      {found.length === 0 && (
        <p class="quiet">{all.length ? "No matches" : `No other ${kind} in this run`}</p>
      )}
      <ul aria-label="Steps to compare with">
        {found.slice(0, SHOWN).map((choice) => (
          <li key={choice.index}>
            <a href={compareHref(run, index, choice.index)} onClick={close}>
              <span class="nowrap">{choice.place}</span>
              <span class="cut trace">{oneLine(choice.text, 120)}</span>
              <span class="quiet mono">s{run.number(choice.index)}</span>
            </a>
          </li>
        ))}
      </ul>
      <p class="quiet">Or shift-click another row in Steps or Tree.</p>
      <OtherRuns run={run} index={index} steps={steps} close={close} />
    </div>
  );
}

/** The same step of other runs of the task. */
function OtherRuns({ run, index, steps, close }: Props & { close: () => void }) {
  const [problem, setProblem] = useState("");
  const number = steps.of(run.shortId(index))?.number;
  const { data } = useSameTask(number === undefined ? null : run.run.short_id);
  if (number === undefined || !data?.runs.length) return null;
  const compare = async (other: string): Promise<void> => {
    try {
      const { steps: others } = await ask<OverviewData>("overview", { id: other });
      const step = others.find((each) => each.number === number);
      const span = step && (run.type(index) === "llm" ? step.span : sameCall(run, index, step));
      if (!span) return setProblem(`Step ${number} of ${other} has no such call.`);
      close();
      go(href("compare", "", { a: span, b: run.shortId(index) }));
    } catch {
      setProblem(`${other} could not be read.`);
    }
  };
  return (
    <>
      <b>Compare with step {number} of another run</b>
      <ul aria-label="Runs to compare with">
        {data.runs.slice(0, RUNS_SHOWN).map((other) => (
          <li key={other.id}>
            <button type="button" class="plain" onClick={() => void compare(other.short_id)}>
              <Status value={other.outcome} brief />
              <span class="mono">{other.short_id}</span>
              <span class="quiet">{ago(other.started_at)}</span>
            </button>
          </li>
        ))}
      </ul>
      {problem && <p class="notice warn">{problem}</p>}
    </>
  );
}

/** The call of the same name in a step, or the span that leads the step. */
function sameCall(run: RunModel, index: number, step: OverviewData["steps"][number]) {
  const name = run.name(index);
  return step.actions.find((action) => action.name === name)?.span ?? mainSpan(step);
}
