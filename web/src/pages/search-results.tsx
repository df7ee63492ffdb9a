/** Full-text search: matches in the bodies, attributes and log lines of all runs. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ApiError, get } from "../api";
import { ago, oneLine } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { VirtualList } from "../parts/virtual-list";
import type { GrepData, Hit, ListData } from "../types";
import { asApiError, useAnswer } from "../use-query";
import { Excerpt } from "./excerpt";
import { hitAddress } from "./hit-link";
import { mergeParents, type Row } from "./merge-hits";
import { taskOf } from "./run-columns";

const TYPING_MS = 200;
const NAMED_MAX = 100;
const NARROW = matchMedia("(max-width: 760px)");

export function Hits({ words }: { words: string }) {
  const [hits, setHits] = useState<Hit[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const turn = useRef(0);
  const load = async (after: string | null): Promise<void> => {
    const mine = ++turn.current;
    try {
      const data = await get<GrepData>("grep", {
        pattern: words,
        words: true,
        ignore_case: true,
        after,
      });
      if (mine !== turn.current) return;
      setHits((before) => (after && before ? [...before, ...data.hits] : data.hits));
      setNext(data.next);
      setError(null);
    } catch (problem) {
      if (mine === turn.current) setError(asApiError(problem));
    }
  };
  useEffect(() => {
    setHits(null);
    setNext(null);
    setError(null);
    // Wait until the typing pauses: a search reads everything.
    const timer = words ? setTimeout(() => void load(null), TYPING_MS) : 0;
    return () => {
      clearTimeout(timer);
      turn.current++; // ignore answers for the previous words
    };
  }, [words]);
  const rows = useMemo(() => mergeParents(hits ?? []), [hits]);
  const names = useRunNames(words);
  if (!words) return <Empty>Search for text in all runs</Empty>;
  if (error)
    return (
      <div class="page-pad">
        <Failed error={error} />
      </div>
    );
  if (!hits) return <Loading />;
  if (!hits.length) return <Empty>No matches</Empty>;
  return (
    <div class="column grow">
      <VirtualList
        label={`Matches for "${words.replaceAll('"', "")}"`}
        count={rows.length}
        height={30}
        row={(at) => <HitRow row={rows[at]!} before={rows[at - 1]} words={words} names={names} />}
      />
      {next && (
        <div class="list-foot">
          <button type="button" onClick={() => void load(next)}>
            Load more
          </button>
        </div>
      )}
    </div>
  );
}

interface RunName {
  title: string;
  started: string;
}

/** The tasks and dates of the runs that match, by short id. */
function useRunNames(words: string): Map<string, RunName> {
  const params = words ? { filter: words, all: true, limit: NAMED_MAX } : null;
  const { data } = useAnswer<ListData>("list", params);
  return useMemo(
    () =>
      new Map(
        data?.runs.map((run) => [
          run.short_id,
          { title: taskOf(run) || run.name, started: ago(run.started_at) },
        ]),
      ),
    [data],
  );
}

interface HitProps {
  row: Row;
  /** The row above, whose run is not named again. */
  before: Row | undefined;
  words: string;
  names: Map<string, RunName>;
}

function HitRow({ row: { hit, others }, before, words, names }: HitProps) {
  const [run = ""] = hit.short_id.split(".");
  const name = before?.hit.short_id.split(".")[0] === run ? undefined : names.get(run);
  return (
    <a class="hit" href={hitAddress(hit, words)}>
      <span class="mono hit-id">{hit.short_id}</span>
      <span class="quiet hit-part">
        {hit.part === "attrs" ? "attribute" : hit.part}
        {hit.count > 1 ? ` ×${hit.count}` : ""}
      </span>
      <span class="cut trace hit-run">{oneLine(name?.title ?? "", 80)}</span>
      <span class="quiet hit-date">{name?.started}</span>
      <span class="cut trace mono grow">
        <Excerpt hit={hit} beforeMax={NARROW.matches ? 16 : null} />
      </span>
      {others > 0 && (
        <span class="quiet nowrap" title="The same text on other spans, for example on parents">
          +{others} {others === 1 ? "span" : "spans"}
        </span>
      )}
    </a>
  );
}
