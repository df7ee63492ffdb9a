/** The run as a chat: messages, tool calls, results and logs in order. */

import { useCallback, useMemo } from "preact/hooks";
import type { RunModel } from "../model";
import { Level, Status } from "../parts/badges";
import { Edits } from "../parts/edits";
import { FoldableText } from "../parts/foldable-text";
import { bytes, cost, count, duration, offset, oneLine } from "../parts/format";
import { FoldsCode } from "../parts/pieces";
import { Empty, Failed, Loading } from "../parts/placeholders";
import { RenderedText } from "../parts/rendered-text";
import { hasTimes } from "../parts/time-bar";
import { VirtualList } from "../parts/virtual-list";
import { filter, openSpan, range, selected } from "../router";
import type { CallItem, Item, MessageItem, Text, ToolItem } from "../types";
import { useAnswer } from "../use-query";
import type { MessagesData } from "./messages";
import { useSteps } from "./selection";
import { useOverview } from "./step-index";
import { canFold, findTask, headlineOf, isInAnswers, lineOf } from "./transcript-lines";
import { useItems } from "./transcript-pages";
import { withTask } from "./transcript-task";
import { type Reading, ReadingTools, readingSpan, usePlace, useReading } from "./transcript-tools";
import type { ViewProps } from "./view-props";
import "./transcript.css";

export default function Transcript({ run }: ViewProps) {
  const words = filter.value.trim().toLowerCase();
  const time = range.value;
  const at = run.at(selected.value);
  const narrowed = words !== "" || time !== null || run.run.outcome === "running";
  const { items: loaded, read, error, complete, more, again } = useItems(run, narrowed, at);
  const task = useOverview(run).data?.task ?? "";
  const reading = useReading(run);
  const { onlyAnswers, isFolded } = reading;
  const items = useMemo(() => withTask(loaded, task, isFolded), [read, task, isFolded]);
  const taskItem = useMemo(() => findTask(items, task), [items, task]);
  const model = useMemo(() => commonModel(items), [items]);
  const place = usePlace(items);
  const shown = useMemo(
    () =>
      items.filter(
        (item) =>
          (!onlyAnswers || isInAnswers(item)) &&
          (!words || textOf(item).includes(words)) &&
          (!time || (item.at_us >= time.from_us && item.at_us <= time.to_us)),
      ),
    [items, onlyAnswers, words, time?.from_us, time?.to_us],
  );
  const spans = useMemo(
    () => [
      ...new Set(shown.map((item) => run.ofShortId(item.span)).filter((one) => one !== undefined)),
    ],
    [shown, run],
  );
  const executed = useMemo(() => executedCalls(items), [items]);
  const keyOf = useCallback((row: number) => shown[row]!.cursor, [shown, isFolded]);
  useSteps(run, spans);
  const active = useMemo(
    () => (at === undefined ? -1 : shown.findIndex((item) => run.ofShortId(item.span) === at)),
    [shown, at],
  );
  if (error && !items.length) return <Failed error={error} again={again} />;
  if (!items.length && !complete) return <Loading what="the transcript" />;
  if (!items.length) return <Empty>No messages in this run</Empty>;
  if (!shown.length)
    return (
      <>
        <ReadingTools reading={reading} onChange={() => undefined} />
        <Empty>No matches</Empty>
      </>
    );
  return (
    <>
      <ReadingTools reading={reading} onChange={() => place.keep(shown)} />
      <VirtualList
        label="Transcript"
        class="grow transcript"
        count={shown.length}
        height={isFolded ? 40 : 90}
        measured
        keyOf={keyOf}
        active={active < 0 ? null : active}
        follow={run.run.outcome === "running"}
        place={place.rowOf(shown)}
        onEnd={complete || error ? undefined : more}
        onTop={(row) => (readingSpan.value = shown[row]?.span ?? null)}
        rowProps={(row) => ({
          class: `say ${run.ofShortId(shown[row]!.span) === at && at !== undefined ? "chosen" : ""}`,
        })}
        row={(row) => (
          <TranscriptItem
            run={run}
            item={shown[row]!}
            executed={executed}
            reading={reading}
            model={model}
            isTask={shown[row] === taskItem}
          />
        )}
      />
      {error && <Failed error={error} again={again} />}
    </>
  );
}

function textOf(item: Item): string {
  const parts: (string | null | undefined)[] = [item.span, item.kind];
  if (item.kind === "tool")
    parts.push(item.name, item.arguments?.text, item.result?.text, item.error);
  else if (item.kind === "call")
    parts.push(
      item.name,
      item.model,
      item.text?.text,
      item.thinking?.text,
      item.error,
      ...item.calls.flatMap((call) => [call.name, call.arguments.text]),
    );
  else if (item.kind === "step") parts.push(item.name, item.type, item.label);
  else if (item.kind === "state") parts.push(item.name, item.text?.text);
  else parts.push(item.text.text, item.kind === "message" ? item.role : "");
  return parts.join(" ").toLowerCase();
}

/** The tool calls that have an item of their own, by call id and span. */
function executedCalls(items: Item[]): Set<string> {
  const found = new Set<string>();
  for (const item of items) {
    if (item.kind !== "tool" || !item.arguments) continue;
    if (item.call_id) found.add(item.call_id);
    if (item.span) found.add(item.span);
  }
  return found;
}

function commonModel(items: Item[]): string {
  const models = new Set(
    items.flatMap((item) => (item.kind === "call" ? [item.model ?? item.name] : [])),
  );
  return models.size === 1 ? [...models][0]! : "";
}

interface ItemProps {
  run: RunModel;
  item: Item;
  executed: Set<string>;
  reading: Reading;
  /** The model of all calls, which is not repeated; empty if there are several. */
  model: string;
  isTask?: boolean;
}

const INDENT_MAX = 8;

/** A duration; empty in a run without times. */
const took = (us: number | null): string => (us ? duration(us) : "");

function TranscriptItem({ run, item, executed, reading, model, isTask = false }: ItemProps) {
  const inside = `calc(${Math.min(item.depth, INDENT_MAX)} * var(--indent))`;
  const style = { marginLeft: inside, maxWidth: `calc(var(--bubble) - ${inside})` };
  const isOpen = isTask || reading.isOpen(item);
  return (
    <div class={`bubble ${mood(item)} ${isOpen ? "" : "is-folded"}`} style={style}>
      <div class={isOpen ? "rowline wrap who" : "rowline who"}>
        {canFold(item) && !isTask ? (
          <button
            type="button"
            class="plain fold-head"
            aria-expanded={isOpen}
            onClick={() => reading.toggle(item)}
          >
            <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
            {isOpen ? (
              <Who item={item} reading={reading} model={model} />
            ) : (
              <FoldedLine item={item} />
            )}
          </button>
        ) : (
          <Who item={item} reading={reading} model={model} />
        )}
        <span class="grow" />
        {isOpen && hasTimes(run) && <span class="quiet mono at">{offset(item.at_us)}</span>}
        <SpanLink run={run} span={item.span} />
      </div>
      {isOpen && (
        <FoldsCode.Provider value={reading.isFolded}>
          <What run={run} item={item} executed={executed} reading={reading} model={model} />
        </FoldsCode.Provider>
      )}
    </div>
  );
}

/** An item in one line: a call with its result, or the beginning of a text. */
function FoldedLine({ item }: { item: Item }) {
  const label =
    item.kind === "tool" ? "tool" : item.kind === "message" ? oneLine(item.role, 20) : item.kind;
  return (
    <>
      <span class="quiet">{item.kind === "log" ? oneLine(item.level, 12) : label}</span>
      <span class="cut trace grow">{lineOf(item)}</span>
      {item.kind === "tool" && <span class="quiet">{took(item.duration_us)}</span>}
    </>
  );
}

function mood(item: Item): string {
  if (item.kind === "message")
    return `from-${["system", "user", "assistant", "tool"].includes(item.role) ? item.role : "other"}`;
  if (item.kind === "tool") return item.is_error ? "is-tool is-bad" : "is-tool";
  if (item.kind === "call") return item.error ? "from-assistant is-bad" : "from-assistant";
  if (item.kind === "error") return "is-bad";
  return "is-small";
}

function SpanLink({ run, span }: { run: RunModel; span: string | null }) {
  const index = run.ofShortId(span);
  if (index === undefined) return null;
  return (
    <button
      type="button"
      class="plain mono"
      aria-label={`Open span s${run.number(index)}`}
      onClick={() => openSpan(run.number(index))}
    >
      s{run.number(index)}
    </button>
  );
}

type WhoProps = Pick<ItemProps, "item" | "reading" | "model">;

function Who({ item, reading, model }: WhoProps) {
  switch (item.kind) {
    case "message":
      return <b>{oneLine(item.role, 20)}</b>;
    case "call":
      return (
        <>
          <b>assistant</b>
          {item.step !== null && <span class="nowrap">step {count(item.step)}</span>}
          {item.agent && <span class="trace">{oneLine(item.agent, 60)}</span>}
          {(item.model ?? item.name) !== model && (
            <span class="quiet trace">{oneLine(item.model ?? item.name, 60)}</span>
          )}
          {item.status !== "ok" && <Status value={item.status} />}
          <span class="quiet">
            {reading.onlyAnswers ? took(item.duration_us) : callFacts(item)}
          </span>
        </>
      );
    case "tool":
      return (
        <>
          <b class="trace">
            <span class="quiet">tool </span>
            {oneLine(item.name ?? item.call_id ?? "", 80)}
          </b>
          {!["ok", "answered"].includes(item.status) && <Status value={item.status} />}
          <span class="quiet">{took(item.duration_us)}</span>
        </>
      );
    case "step":
      return (
        <>
          <span class="quiet">{oneLine(item.type, 24)}</span>
          <b class="trace">{oneLine(item.name, 80)}</b>
          {item.status !== "ok" && <Status value={item.status} />}
          <span class="quiet">{took(item.duration_us)}</span>
        </>
      );
    case "state":
      return (
        <>
          <span class="quiet">state</span>
          <b class="trace">{oneLine(item.name, 80)}</b>
        </>
      );
    case "log":
      return (
        <>
          <Level value={oneLine(item.level, 12)} />
          <span class="quiet trace">{oneLine(item.component, 40)}</span>
        </>
      );
    case "error":
      return (
        <span class="badge bad">
          <span aria-hidden="true">✕</span> {oneLine(item.type ?? "error", 60)}
        </span>
      );
  }
}

const newMessages = (times: number): string =>
  `${times} new ${times === 1 ? "message" : "messages"}`;

function callFacts(item: CallItem): string {
  const facts = [
    took(item.duration_us),
    item.input_tokens === null ? "" : `${count(item.input_tokens)} in`,
    item.cache_read ? `${count(item.cache_read)} cached` : "",
    item.output_tokens === null ? "" : `${count(item.output_tokens)} out`,
    cost(item.cost_usd),
    item.repeated && item.messages > item.repeated
      ? newMessages(item.messages - item.repeated)
      : "",
  ];
  return facts.filter(Boolean).join(" · ");
}

const NORMAL_ENDS = ["stop", "end_turn", "tool_use", "tool_calls", "STOP", "completed", "error"];

function What({ run, item, executed, reading }: ItemProps) {
  const isExecuted = (call: CallItem["calls"][number]): boolean =>
    executed.has(call.id ?? "") || executed.has(call.span ?? "");
  switch (item.kind) {
    case "call":
      return (
        <>
          {reading.isFolded && <Headline item={item} />}
          {item.thinking && <Thinking text={item.thinking} />}
          {item.text?.text && <FoldableText text={item.text} brief={reading.isFolded} />}
          {item.error && <div class="notice bad trace">{oneLine(item.error, 600)}</div>}
          {item.calls
            .filter((call) => !reading.isFolded || !isExecuted(call))
            .map((call, at) => (
              <div class="call" key={at}>
                <span class="quiet">calls </span>
                <b class="trace">{oneLine(call.name, 80)}</b>
                <SpanLink run={run} span={call.span} />
                {!isExecuted(call) && <FoldableText text={call.arguments} source />}
              </div>
            ))}
          {item.finish_reason && !NORMAL_ENDS.includes(item.finish_reason) && (
            <div class="notice warn">
              Stopped:{" "}
              {item.finish_reason === "length"
                ? "output token limit"
                : oneLine(item.finish_reason, 60)}
            </div>
          )}
        </>
      );
    case "tool":
      return <Tool item={item} />;
    case "step":
      return item.label ? <div class="trace quiet">{oneLine(item.label, 300)}</div> : null;
    case "state":
      return item.text && <FoldableText text={item.text} />;
    case "log":
      return <FoldableText text={item.text} more={item.label} />;
    case "message":
      return <Message item={item} brief={reading.isFolded} />;
    default:
      return <FoldableText text={item.text} />;
  }
}

function Headline({ item }: { item: CallItem }) {
  const headline = headlineOf(item);
  return headline ? <p class="trace headline">{headline}</p> : null;
}

function Thinking({ text }: { text: Text }) {
  return (
    <details class="thinking">
      <summary>Thinking · {count(text.text.split(/\s+/).filter(Boolean).length)} words</summary>
      <RenderedText text={text.text} />
    </details>
  );
}

/** A longer system prompt is folded: it is the same in every run of a program. */
const SYSTEM_SHOWN = 600;

function Message({ item, brief }: { item: MessageItem; brief: boolean }) {
  if (item.part === "thinking") return <Thinking text={item.text} />;
  if (item.part === "image") return <Picture item={item} />;
  if (item.role === "system" && item.text.text.length > SYSTEM_SHOWN)
    return (
      <details class="thinking">
        <summary>System prompt · {bytes(item.text.size_bytes)}</summary>
        <FoldableText text={item.text} />
      </details>
    );
  return <FoldableText text={item.text} brief={brief} />;
}

/** A picture of a message: the transcript has its size, the model call has its bytes. */
function Picture({ item }: { item: MessageItem }) {
  const { data } = useAnswer<MessagesData>("messages", item.span ? { id: item.span } : null);
  const parts = data?.messages.flatMap((message) => message.parts) ?? [];
  const found = parts.find((part) => part.image && part.text === item.text.text);
  if (found?.image) return <img class="chat-image" src={found.image} alt={oneLine(found.text)} />;
  return <p class="quiet trace">{oneLine(item.text.text)}</p>;
}

function Tool({ item }: { item: ToolItem }) {
  return (
    <div class="exchange">
      <Edits edits={item.edits} />
      {item.arguments && !item.edits?.length && (
        <div>
          <span class="quiet">Arguments</span>
          <FoldableText text={item.arguments} source />
        </div>
      )}
      {item.result && (
        <div>
          <span class="quiet">Result</span>
          <FoldableText text={item.result} code />
        </div>
      )}
      {!item.result && !item.error && (
        <div class="quiet">{item.status === "open" ? "Still running" : "No result"}</div>
      )}
      {item.error && <div class="notice bad trace">{oneLine(item.error, 600)}</div>}
    </div>
  );
}
