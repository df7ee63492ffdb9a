/** Links to the runs before and after this one in time. */

import { exported } from "../api";
import { useKeys } from "../keys";
import { go, href } from "../router";
import type { ListData, RunRow } from "../types";
import { useAnswer } from "../use-query";
import { outcomeWord } from "./badges";

export function Neighbours({ run }: { run: string }) {
  const near = exported ? null : { after: run, limit: 1, sort: "started" };
  const earlier = useAnswer<ListData>("list", near).data?.runs[0];
  const later = useAnswer<ListData>("list", near && { ...near, reverse: true }).data?.runs[0];
  const open = (to: RunRow | undefined): void => {
    if (to) go(href("run", to.short_id));
  };
  useKeys([
    { key: "[", label: "Earlier run", run: () => open(earlier) },
    { key: "]", label: "Later run", run: () => open(later) },
  ]);
  if (!earlier && !later) return null;
  return (
    <nav class="rowline nowrap neighbours" aria-label="Earlier and later runs">
      {earlier && <To run={earlier} title="Earlier run" before="← " />}
      {later && <To run={later} title="Later run" after=" →" />}
    </nav>
  );
}

interface Props {
  run: RunRow;
  title: string;
  before?: string;
  after?: string;
}

const To = ({ run, title, before = "", after = "" }: Props) => (
  <a class="quiet" href={href("run", run.short_id)} title={title}>
    {before}
    {run.short_id} {outcomeWord(run.outcome).toLowerCase()}
    {after}
  </a>
);
