/**
 * Markdown as elements of the page, made one by one: what is HTML in the text stays text, images are
 * shown as their words, links as text with their address. Nothing is fetched, nothing is executed.
 */

import { marked, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { visible } from "./format";

const DEPTH_MAX = 40;

export function Markdown({ text }: { text: string }) {
  let tokens: Token[];
  try {
    tokens = marked.lexer(visible(text), { gfm: true });
  } catch {
    return <pre class="trace words">{visible(text)}</pre>;
  }
  return <div class="markdown trace">{many(tokens, 0)}</div>;
}

function many(tokens: Token[] | undefined, depth: number): ComponentChildren {
  if (depth > DEPTH_MAX) return "…";
  return tokens?.map((token, at) => <One key={at} token={token} depth={depth + 1} />);
}

function One({ token, depth }: { token: Token; depth: number }) {
  const inside = (): ComponentChildren => many((token as { tokens?: Token[] }).tokens, depth);
  switch (token.type) {
    case "heading":
      return <p class="heading">{inside()}</p>;
    case "paragraph":
      return <p>{inside()}</p>;
    case "text":
      return <>{(token as Tokens.Text).tokens ? inside() : (token as Tokens.Text).text}</>;
    case "strong":
      return <strong>{inside()}</strong>;
    case "em":
      return <em>{inside()}</em>;
    case "del":
      return <s>{inside()}</s>;
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "codespan":
      return <code>{(token as Tokens.Codespan).text}</code>;
    case "code":
      return <pre class="mono">{(token as Tokens.Code).text}</pre>;
    case "blockquote":
      return <blockquote>{inside()}</blockquote>;
    case "list": {
      const list = token as Tokens.List;
      const items = list.items.map((item, at) => <li key={at}>{many(item.tokens, depth)}</li>);
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table": {
      const table = token as Tokens.Table;
      return (
        <table class="plain">
          <thead><tr>{table.header.map((cell, at) => <th key={at}>{many(cell.tokens, depth)}</th>)}</tr></thead>
          <tbody>{table.rows.map((row, at) => <tr key={at}>{row.map((cell, column) => <td key={column}>{many(cell.tokens, depth)}</td>)}</tr>)}</tbody>
        </table>
      );
    }
    case "link":
      return <span>{inside()} <span class="quiet">({(token as Tokens.Link).href})</span></span>;
    case "image":
      return <span class="quiet">[image: {(token as Tokens.Image).text || "no words"} ({(token as Tokens.Image).href})]</span>;
    case "space":
      return null;
    default:
      return <>{token.raw}</>;
  }
}
