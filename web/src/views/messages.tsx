/** A model call as a chat: the messages of its request, those that are new, and the answer. */

import { useState } from "preact/hooks";
import { type Answer, exported } from "../api";
import type { RunModel } from "../model";
import { findWords } from "../parts/find-words";
import { FoldableText } from "../parts/foldable-text";
import { bytes, count, oneLine, short, visible } from "../parts/format";
import { CodeBlock } from "../parts/pieces";
import { Failed, Loading } from "../parts/placeholders";
import { RenderedText } from "../parts/rendered-text";
import { href, openSpan, searched } from "../router";
import { useAnswer } from "../use-query";
import type { StepIndex } from "./step-index";
import "./messages.css";

export type MessagesData = Answer<"messages">;
type ChatMessage = MessagesData["messages"][number];
type Part = ChatMessage["parts"][number];

/** Bytes of one token, on average, where no provider has counted. */
const BYTES_PER_TOKEN = 4;
/** Messages before the new ones that are folded into one line. */
const FOLD_AT_LEAST = 3;

export function useMessages(run: RunModel, index: number) {
  const hasBody = run.inputBytes(index) !== null || run.outputBytes(index) !== null;
  const isCall = run.type(index) === "llm" && hasBody;
  const version = run.status(index) ?? run.next;
  return useAnswer<MessagesData>("messages", isCall ? { id: run.shortId(index) } : null, version);
}

/** True if a part of a message has the words of a search. */
export const hasWords = (message: ChatMessage, words: string): boolean =>
  words.trim() !== "" && message.parts.some((part) => findWords(part.text, words).length > 0);

interface Props {
  run: RunModel;
  index: number;
  steps: StepIndex;
  onlyNew: boolean;
}

export function Messages({ run, index, steps, onlyNew }: Props) {
  const { data, error } = useMessages(run, index);
  if (error) return <Failed error={error} />;
  if (!data) return <Loading what="the messages" />;
  const id = run.shortId(index);
  return (
    <div class="scroll grow chat" tabIndex={0} role="region" aria-label="Messages">
      {data.error && <div class="notice bad trace">{visible(data.error)}</div>}
      {data.lost_head && !onlyNew && <LostHead run={run} lost={data.lost_head} steps={steps} />}
      <Sent data={data} onlyNew={onlyNew} id={id} steps={steps} />
      {data.messages_left_out > 0 && (
        <p class="quiet">{count(data.messages_left_out)} more messages are in the raw request.</p>
      )}
      {data.answer && (
        <Bubble message={data.answer} id={id} title="answer" note={answerNote(run, index)} open />
      )}
      {!data.answer && !data.error && (
        <p class="quiet">
          {run.status(index) === null ? "No answer yet" : "No answer was recorded"}
        </p>
      )}
      {data.finish_reason && <Finish reason={data.finish_reason} />}
    </div>
  );
}

interface LostHeadProps {
  run: RunModel;
  lost: NonNullable<MessagesData["lost_head"]>;
  steps: StepIndex;
}

/** The beginning of the prompt is missing: say so, and lead to the call that still has it. */
function LostHead({ run, lost, steps }: LostHeadProps) {
  const step = steps.of(lost.span);
  const place = step ? `step ${step.number}` : lost.span;
  const index = run.ofShortId(lost.span);
  return (
    <div class="notice warn rowline wrap">
      <span>
        {lost.messages === 1
          ? `The first message of ${place} is missing here: `
          : `The first ${count(lost.messages)} messages of ${place} are missing here: `}
        the recording or the program dropped {lost.messages === 1 ? "it" : "them"}.
      </span>
      {index !== undefined && (
        <button type="button" class="plain link" onClick={() => openSpan(run.number(index))}>
          Show in {place}
        </button>
      )}
    </div>
  );
}

const NORMAL_ENDS = new Set(["stop", "end_turn", "tool_use", "tool_calls", "completed", "error"]);

function Finish({ reason }: { reason: string }) {
  if (NORMAL_ENDS.has(reason.toLowerCase())) return null;
  const cause = reason === "length" ? "output token limit" : oneLine(reason, 60);
  return <div class="notice warn">Stopped: {cause}</div>;
}

function answerNote(run: RunModel, index: number): string {
  const tokens = run.outputTokens(index);
  return tokens === null ? "" : `${count(tokens)} tokens`;
}

interface SentProps {
  data: MessagesData;
  onlyNew: boolean;
  id: string;
  steps: StepIndex;
}

/** The request: the system prompt, a folded history, and what is new. */
function Sent({ data, onlyNew, id, steps }: SentProps) {
  const [all, setAll] = useState(false);
  const { messages } = data;
  const follows = data.previous !== null;
  const before = steps.of(data.previous);
  const since = before ? `new since step ${before.number}` : "new";
  const changes = data.previous ? href("compare", "", { a: data.previous, b: id }) : "";
  // A request has one system prompt: another text is a change of it.
  const markOf = (message: ChatMessage): string =>
    message.role === "system" ? since.replace("new", "changed") : since;
  const isHistory = (message: ChatMessage, at: number): boolean =>
    follows && !message.new && message.role !== "system" && at > 0;
  const history = messages.filter(isHistory);
  const words = searched.value;
  const hasHit = words !== "" && history.some((message) => hasWords(message, words));
  const folded = onlyNew || (!all && !hasHit && history.length >= FOLD_AT_LEAST);
  let hasFolded = false;
  return (
    <>
      {data.tools.length > 0 && !onlyNew && <Tools names={data.tools} />}
      {messages.map((message, at) => {
        if (onlyNew && !message.new) return null;
        if (folded && isHistory(message, at)) {
          if (hasFolded) return null;
          hasFolded = true;
          return <Folded key={at} messages={history} open={() => setAll(true)} />;
        }
        return (
          <Bubble
            key={at}
            message={message}
            id={id}
            mark={follows && message.new ? markOf(message) : ""}
            compare={message.role === "system" && message.new ? changes : ""}
            open={message.role !== "system" && (message.new || !follows || all)}
          />
        );
      })}
      {onlyNew && !messages.some((message) => message.new) && (
        <p class="quiet">Nothing new since the previous call.</p>
      )}
    </>
  );
}

function Tools({ names }: { names: string[] }) {
  return (
    <details class="chat-tools">
      <summary>
        {count(names.length)} {names.length === 1 ? "tool" : "tools"} offered
      </summary>
      <p class="mono trace">{names.map((name) => oneLine(name, 80)).join(", ")}</p>
    </details>
  );
}

function Folded({ messages, open }: { messages: ChatMessage[]; open: () => void }) {
  return (
    <div class="chat-fold">
      <span class="quiet">
        ⋯ {count(messages.length)} messages, sent before ({tokensOf(messages)})
      </span>
      <button type="button" class="plain link" onClick={open}>
        Show {count(messages.length)} messages
      </button>
    </div>
  );
}

const MEDIA = new Set(["image", "audio", "file"]);

/** `about 2.1k tokens, 1 image`: pictures and sounds are not counted by their bytes. */
function tokensOf(messages: ChatMessage[]): string {
  const parts = messages.flatMap((message) => message.parts);
  const media = parts.filter((part) => MEDIA.has(part.kind));
  const total = messages.reduce((sum, message) => sum + message.size_bytes, 0);
  const text = media.length
    ? parts.reduce((sum, part) => sum + (MEDIA.has(part.kind) ? 0 : part.size_bytes), 0)
    : total;
  const images = media.filter((part) => part.kind === "image").length;
  const others = media.length - images;
  return [
    `about ${short(Math.ceil(text / BYTES_PER_TOKEN))} tokens`,
    images ? `${images} ${images === 1 ? "image" : "images"}` : "",
    others ? `${others} ${others === 1 ? "file" : "files"}` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

interface BubbleProps {
  message: ChatMessage;
  /** The span, whose bodies have the full text. */
  id: string;
  title?: string;
  mark?: string;
  note?: string;
  /** The address of a comparison with the previous call; empty: none. */
  compare?: string;
  open: boolean;
}

function Bubble(props: BubbleProps) {
  const { message, id, title = "", mark = "", note = "", compare = "", open: first } = props;
  /** Null until it is opened or closed by hand. */
  const [chosen, setOpen] = useState<boolean | null>(null);
  const open = chosen ?? (first || hasWords(message, searched.value));
  const role = oneLine(message.role, 24);
  const beginning = message.parts.find((part) => part.text.trim())?.text ?? "";
  return (
    <article
      class={`chat-message from-${KNOWN.has(role) ? role : "other"} ${mark ? "is-new" : ""}`}
    >
      <header class="rowline">
        <button
          type="button"
          class="plain chat-head"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          <span aria-hidden="true">{open ? "▾" : "▸"}</span>
          <b>{role}</b>
          <span class="quiet">
            {[title, note || tokensOf([message])].filter(Boolean).join(" · ")}
          </span>
        </button>
        {!open && <span class="grow cut quiet trace">{oneLine(beginning, 160)}</span>}
        {open && <span class="grow" />}
        {compare && !exported && (
          <a class="nowrap" href={compare}>
            Show changes
          </a>
        )}
        {mark && <span class="badge ok">{mark}</span>}
      </header>
      {open && (
        <div class="chat-body">
          {message.parts.map((part, at) => (
            <PartView key={at} part={part} id={id} role={role} />
          ))}
          {message.parts.every((part) => !part.text.trim() && !part.image) && (
            <span class="quiet">Empty</span>
          )}
        </div>
      )}
    </article>
  );
}

const KNOWN = new Set(["system", "user", "assistant", "tool"]);

function PartView({ part, id, role }: { part: Part; id: string; role: string }) {
  const text = {
    text: part.text,
    size_bytes: part.size_bytes,
    cut: part.truncated,
    body: { span: id, which: part.side },
  };
  switch (part.kind) {
    case "thinking":
      return (
        <details
          class="thinking"
          open={searched.value !== "" && findWords(part.text, searched.value).length > 0}
        >
          <summary>Thinking · {bytes(part.size_bytes)}</summary>
          <RenderedText text={part.text} />
        </details>
      );
    case "tool_call":
      return (
        <div class="tool-call">
          <div class="rowline">
            <span class="quiet">calls</span>
            <b class="mono trace">{oneLine(part.name ?? "", 120)}</b>
            {part.call_id && <span class="quiet mono cut">{oneLine(part.call_id, 40)}</span>}
          </div>
          {part.text.trim() && <FoldableText text={text} source />}
        </div>
      );
    case "tool_result":
      return (
        <div class={part.is_error ? "tool-result is-bad" : "tool-result"}>
          {(part.name || part.call_id || part.is_error) && (
            <div class="rowline quiet">
              {part.is_error && <span class="badge bad">✕ error</span>}
              <span class="mono cut">{oneLine(part.name ?? part.call_id ?? "", 80)}</span>
            </div>
          )}
          <FoldableText text={text} code />
        </div>
      );
    case "code":
      return <CodeBlock code={part.text} language={part.name ?? ""} />;
    case "image":
      return part.image ? (
        <img class="chat-image" src={part.image} alt={visible(part.text)} />
      ) : (
        <p class="quiet trace">{visible(part.text)}</p>
      );
    case "audio":
    case "file":
    case "other":
      return <p class="quiet trace">{visible(part.text)}</p>;
    default:
      return part.text.trim() ? <FoldableText text={text} code={role === "tool"} roomy /> : null;
  }
}
