/** Full-text search: where words stand, in any run's bodies, attributes and log lines. */

import { useEffect, useRef, useState } from "preact/hooks";
import { asApiError } from "../answers";
import { get, type ApiError } from "../api";
import { visible } from "../parts/format";
import { Empty, Failed, Loading } from "../parts/state";
import { VirtualList } from "../parts/virtual";
import { href } from "../state";
import type { GrepData } from "../types";

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
    // While one types, not each letter is a question: a search reads all there is.
    const timer = words ? setTimeout(() => void load(null), TYPING_MS) : 0;
    return () => {
      clearTimeout(timer);
      turn.current++; // answers to other words come too late
    };
  }, [words]);
  if (!words) return <Empty>Type words into the field above: here is where they stand.</Empty>;
  if (error) return <div class="page-pad"><Failed error={error} /></div>;
  if (!hits) return <Loading />;
  if (!hits.length) return <Empty>Nowhere.</Empty>;
  return (
    <div class="column grow">
      <VirtualList
        label={`Where ${words} stands`}
        count={hits.length}
        height={30}
        row={(at) => <HitRow hit={hits[at]!} />}
      />
      {next && (
        <div class="list-foot">
          <button type="button" onClick={() => void load(next)}>Look further</button>
        </div>
      )}
    </div>
  );
}

function HitRow({ hit }: { hit: Hit }) {
  const [run = "", span = ""] = hit.short_id.split(".");
  return (
    <a class="hit" href={href("run", run, { view: "tree", span })}>
      <span class="mono hit-id">{hit.short_id}</span>
      <span class="quiet hit-part">{hit.part}{hit.count > 1 ? ` ×${hit.count}` : ""}</span>
      <span class="cut trace mono">{visible(hit.before)}<mark>{visible(hit.match)}</mark>{visible(hit.after)}</span>
    </a>
  );
}
