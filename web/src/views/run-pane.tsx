/** The pane while no span is selected: what the run was to do, and what came of it. */

import { exported } from "../api";
import type { RunModel } from "../model";
import { moment } from "../parts/format";
import { Notes } from "../parts/notes";
import { Loading } from "../parts/placeholders";
import { RenderedText } from "../parts/rendered-text";
import { href } from "../router";
import type { OverviewData } from "../types";
import Metadata from "./metadata";
import { SameTask } from "./same-task";

export function RunPane({ run, overview }: { run: RunModel; overview: OverviewData | null }) {
  if (!overview) return <Loading what="the summary" />;
  const { task, answer, good_run: good } = overview;
  if (!task && !answer && !good) return <Metadata run={run} />;
  return (
    <div class="scroll grow run-pane" tabIndex={0} role="region" aria-label="Task and answer">
      <Section title="Task">
        {task ? <RenderedText text={task} /> : <p class="quiet">No task was recorded.</p>}
      </Section>
      <Section title="Answer">
        {answer ? (
          <RenderedText text={answer} />
        ) : (
          <p class="quiet">
            {run.run.outcome === "running" ? "No answer yet." : "No answer was recorded."}
          </p>
        )}
      </Section>
      {!exported && (
        <Section title="Other runs of this task">
          <SameTask run={run.run.short_id} />
        </Section>
      )}
      {good && exported && (
        <Section title="Last successful run of this task">
          <p>
            <a class="in-text" href={href("run", good.short_id)}>
              {good.short_id}
            </a>{" "}
            <span class="quiet">{moment(good.started_at)}</span>{" "}
            <a class="button" href={href("compare", "", { a: good.short_id, b: run.run.short_id })}>
              Compare
            </a>
          </p>
        </Section>
      )}
      <Notes run={run.run.short_id} />
    </div>
  );
}

function Section({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <section class="panel card-open">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
