/** The pane of the selected span: its messages or values, exact bytes, sizes, attributes, cause. */

import { useState } from "preact/hooks";
import { exported } from "../api";
import { useKeys } from "../keys";
import type { RunModel } from "../model";
import { Kind, Status } from "../parts/badges";
import { bytes, count, duration, oneLine, price, short } from "../parts/format";
import { Notes } from "../parts/notes";
import { Failed, Loading } from "../parts/placeholders";
import { TabPanel, Tabs } from "../parts/tabs";
import { hasTimes } from "../parts/time-bar";
import { searched, select, showTab, tab } from "../router";
import type { SpanData, WhyData } from "../types";
import { type Asked, useAnswer } from "../use-query";
import { Attributes, SpanButton } from "./attributes";
import { BodyView } from "./body";
import { ForkMenu, type Lineage } from "./lineage";
import { hasWords, Messages, type MessagesData, useMessages } from "./messages";
import { Segments } from "./prompt-sizes";
import type { Total } from "./roll-up";
import { CompareSpan } from "./span-compare";
import { CopyActions } from "./span-copy";
import { recordedName, type StepIndex, spanTitle } from "./step-index";
import { priceOf, useSpanTotals } from "./use-span-totals";
import { Values } from "./values";
import "./span-pane.css";

/** `input` and `output` are the two sides of the tab Raw. */
type Part = "messages" | "new" | "values" | "input" | "output" | "sizes" | "attributes" | "why";
type TabId = Exclude<Part, "output">;

interface Props {
  run: RunModel;
  index: number;
  steps: StepIndex;
  lineage: Lineage | null;
}

export default function SpanPane({ run, index, steps, lineage }: Props) {
  const id = run.shortId(index);
  const { data, error, again } = useAnswer<SpanData>("span", { id }, run.status(index) ?? run.next);
  const [noting, setNoting] = useState("");
  const step = steps.of(id);
  const name = oneLine(spanTitle(run, index, steps), 120) || "Untitled";
  const total = useSpanTotals(run).get(index);
  useKeys(exported ? [] : [{ key: "m", label: "Add a note", run: () => setNoting(id) }]);
  const chat = useMessages(run, index);
  const tabs = tabsOf(run, index, chat.data, steps);
  const part = partOf(shownTab(tab.value, chat), run, index, tabs);
  const current: TabId = part === "output" ? "input" : part;
  const pick = (to: TabId): void =>
    showTab(to === "input" && run.inputBytes(index) === null ? "output" : to);
  return (
    <>
      <div class="pane-head">
        <div class="rowline">
          <Kind type={oneLine(run.type(index), 24)} />
          <h2 class="cut trace" title={name}>
            {step && run.type(index) === "llm" ? `Step ${step.number}` : name}
          </h2>
          {run.status(index) !== "ok" && <Status value={run.status(index)} />}
          <span class="quiet cut grow">{factsOf(run, index, data, steps, total)}</span>
          <ForkMenu
            key={`fork ${id}`}
            span={id}
            isCall={run.type(index) === "llm"}
            lineage={lineage}
          />
          {!exported && (
            <button type="button" aria-label="Add a note" onClick={() => setNoting(id)}>
              Note
            </button>
          )}
          {!exported && <CompareSpan key={`compare ${id}`} run={run} index={index} steps={steps} />}
          <CopyActions key={`copy ${id}`} run={run} index={index} data={data} />
          <button type="button" class="plain" aria-label="Close" onClick={() => select(null)}>
            ✕
          </button>
        </div>
        <Notes
          key={`notes ${id}`}
          run={run.run.short_id}
          span={id}
          adding={noting === id}
          onDone={() => setNoting("")}
        />
      </div>
      <Tabs label="Span sections" panel="span-part" current={current} onPick={pick} tabs={tabs} />
      <TabPanel panel="span-part" current={current}>
        {error && <Failed error={error} again={again} />}
        {!data && !error && <Loading />}
        {(part === "messages" || part === "new") && (
          <Messages key={id} run={run} index={index} steps={steps} onlyNew={part === "new"} />
        )}
        {part === "values" && data && <Values key={id} run={run} index={index} data={data} />}
        {(part === "input" || part === "output") && <Raw run={run} index={index} side={part} />}
        {part === "sizes" && <Segments span={id} />}
        {part === "attributes" && data && <Attributes run={run} index={index} data={data} />}
        {part === "why" && <Why run={run} id={id} version={run.status(index) ?? run.next} />}
      </TabPanel>
    </>
  );
}

type TabRow = { id: TabId; label: string; note?: string };

function tabsOf(
  run: RunModel,
  index: number,
  chat: MessagesData | null,
  steps: StepIndex,
): TabRow[] {
  const isCall = run.type(index) === "llm";
  const hasBody = run.inputBytes(index) !== null || run.outputBytes(index) !== null;
  const tabs: TabRow[] = [];
  if (isCall && hasBody) {
    tabs.push({ id: "messages", label: "Messages", note: count(chat?.messages.length) });
    if (chat?.previous) {
      const before = steps.of(chat.previous);
      const label = before ? `New since step ${before.number}` : "New";
      tabs.push({ id: "new", label, note: count(chat.messages.filter((each) => each.new).length) });
    }
  } else if (hasBody || run.failed(index)) {
    tabs.push({ id: "values", label: run.type(index) === "tool" ? "Call" : "Content" });
  }
  if (hasBody) tabs.push({ id: "input", label: "Raw" });
  if (chat?.has_sizes || run.type(index) === "prompt.assembly")
    tabs.push({ id: "sizes", label: "Sizes" });
  tabs.push({ id: "attributes", label: "Attributes" });
  if (run.failed(index)) tabs.push({ id: "why", label: "Cause" });
  return tabs;
}

/** The tab that shows a match of the search: the messages that have it, else its exact bytes. */
function shownTab(named: string, chat: Asked<MessagesData>): string {
  const side = /^hit-(input|output)$/.exec(named)?.[1];
  if (!side) return named;
  const { data } = chat;
  if (!data) return chat.error ? side : "messages";
  const all = data.answer ? [...data.messages, data.answer] : data.messages;
  return all.some((message) => hasWords(message, searched.value)) ? "messages" : side;
}

/** The tab of the URL if this span has it, else the first. */
function partOf(named: string, run: RunModel, index: number, tabs: TabRow[]): Part {
  if (named === "input" && run.inputBytes(index) !== null) return "input";
  if (named === "output" && run.outputBytes(index) !== null) return "output";
  if (named === "input" || named === "output") {
    const side = run.inputBytes(index) !== null ? "input" : "output";
    return tabs.some(({ id }) => id === "input") ? side : tabs[0]!.id;
  }
  return tabs.find(({ id }) => id === named)?.id ?? tabs[0]!.id;
}

/** A model call is titled by its step: its name is a function of a framework, and comes last. */
function factsOf(
  run: RunModel,
  index: number,
  data: SpanData | null,
  steps: StepIndex,
  total: Total | undefined,
): string {
  const step = steps.of(run.shortId(index));
  const recorded = recordedName(run, index, steps);
  const isLeaf = run.type(index) === "llm";
  const isCall = step !== undefined && isLeaf;
  const [input, output] = [run.inputTokens(index), run.outputTokens(index)];
  return [
    step && !isCall && !recorded ? `step ${step.number}` : "",
    oneLine(run.model(index), 60),
    hasTimes(run) ? duration(run.duration(index)) : "",
    isLeaf && input !== null ? `${short(input)} in / ${short(output ?? 0)} out` : "",
    !isLeaf && total?.tokens ? `${short(total.tokens)} tokens` : "",
    // The calls inside an agent or a step are summed up.
    isLeaf ? price(data?.cost_usd, true) : priceOf(total),
    `s${run.number(index)}`,
    isCall ? oneLine(run.name(index), 60) : "",
    recorded && `recorded as ${oneLine(recorded, 60)}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

/** The exact bytes of one side. */
function Raw({ run, index, side }: { run: RunModel; index: number; side: "input" | "output" }) {
  const id = run.shortId(index);
  const sizes = { input: run.inputBytes(index), output: run.outputBytes(index) };
  const sides = (["input", "output"] as const).filter((one) => sizes[one] !== null);
  return (
    <>
      {sides.length > 1 && (
        <div class="rowline viewtools" role="group" aria-label="Side">
          {sides.map((one) => (
            <button
              key={one}
              type="button"
              class="plain"
              aria-pressed={one === side}
              onClick={() => showTab(one)}
            >
              {one === "input" ? "Input" : "Output"} <span class="quiet">{bytes(sizes[one])}</span>
            </button>
          ))}
        </div>
      )}
      <BodyView
        key={`${id} ${side}`}
        span={id}
        which={side}
        compared={run.type(index) === "llm" || !exported}
      />
    </>
  );
}

const RELATIONS: Record<string, string> = {
  asked: "This span",
  blamed: "Likely cause:",
  inside: "Parent",
  linked: "Triggered by",
};

function Why({ run, id, version }: { run: RunModel; id: string; version: string }) {
  const { data, error } = useAnswer<WhyData>("why", { id }, version);
  if (error) return <Failed error={error} />;
  if (!data) return <Loading what="the causes" />;
  return (
    <ol class="why scroll grow" tabIndex={0} aria-label="Causes">
      {data.chain.map((link, at) => (
        <li key={at}>
          <span class="quiet">
            {RELATIONS[link.relation] ?? oneLine(link.relation, 30)}
            {link.reason && link.relation !== "blamed" ? ` (${oneLine(link.reason, 60)})` : ""}{" "}
          </span>
          <SpanButton run={run} short={link.short_id} />
          {link.finding && (
            <div class="notice warn trace">{oneLine(link.finding.message, 300)}</div>
          )}
        </li>
      ))}
    </ol>
  );
}
