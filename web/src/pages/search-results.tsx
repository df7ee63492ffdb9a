/** Full-text search: matches in the bodies, attributes and log lines of all runs. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, get } from "../api";
import { visible } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { VirtualList } from "../parts/virtual-list";
import { href } from "../router";
import type { GrepData } from "../types";
import { asApiError } from "../use-query";

const TYPING_MS = 200;

type Hit = GrepData["hits"][number];

export function Hits({ words }: { words: string }) {
  const [hits, setHits] = useState<Hit[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const turn = useRef(0);
  const load = async (after: string | null): Promise<void> => {
    const mine = ++turn.current;
    try {
      const data = await get<GrepData>("grep", { pattern: words, ignore_case: true, after });
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
        label={`Matches for "${words}"`}
        count={hits.length}
        height={30}
        row={(at) => <HitRow hit={hits[at]!} words={words} />}
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

function HitRow({ hit, words }: { hit: Hit; words: string }) {
  const [run = "", span = ""] = hit.short_id.split(".");
  // The tab with the match; the words are highlighted there.
  const tab = hit.part === "input" || hit.part === "output" ? hit.part : "";
  return (
    <a class="hit" href={href("run", run, { span, tab, find: words })}>
      <span class="mono hit-id">{hit.short_id}</span>
      <span class="quiet hit-part">
        {hit.part === "attrs" ? "attribute" : hit.part}
        {hit.count > 1 ? `, ${hit.count} matches` : ""}
      </span>
      <span class="cut trace mono">
        {visible(hit.before)}
        <mark>{visible(hit.match)}</mark>
        {visible(hit.after)}
      </span>
    </a>
  );
}
