/**
 * Markdown, rendered token by token as elements of ours. There is no
 * HTML in between, so nothing in the text can become markup, a link that is followed or an image
 * that is loaded: HTML stays text, a link shows its address, an image its description.
 */

import { Marked, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { fenceDiffs } from "./diff-in-prose";
import { visible } from "./format";
import { fenceJson } from "./json-in-prose";
import { CodeBlock } from "./pieces";
import { isPythonName } from "./text-kind";

/** Longer texts are shown as they are: parsing them would hold the page up. */
const MOST = 200_000;
const DEPTH = 20;

/**
 * Prompts mark their parts with tags (<issue>), which are no HTML here: what follows such a line is
 * Markdown. Line breaks stay, as in a chat.
 */
const parser = new Marked({ breaks: true, tokenizer: { html: () => undefined } });

export function Markdown({ text }: { text: string }) {
  const tokens = text.length > MOST ? null : parse(text);
  if (!tokens) return <pre class="trace">{visible(text)}</pre>;
  return <div class="markdown trace">{blocks(tokens, 0)}</div>;
}

/** Null: nested too deeply for the parser, which would take the page down with it. */
function parse(text: string): Token[] | null {
  try {
    // Stop tokens of code agents follow the fence directly, which then would not end the block.
    return parser.lexer(fenceDiffs(fenceJson(text.replace(/^(\s*```)(<\w+>)/gm, "$1\n$2"))));
  } catch {
    return null;
  }
}

function blocks(tokens: Token[] | undefined, depth: number): ComponentChildren {
  if (!tokens || depth > DEPTH) return null;
  return tokens.map((token, at) => <Block key={at} token={token} depth={depth + 1} />);
}

function Block({ token, depth }: { token: Token; depth: number }): ComponentChildren {
  switch (token.type) {
    case "space":
      return null;
    case "heading":
      return (
        <p class="md-heading">
          <strong>{blocks(token.tokens, depth)}</strong>
        </p>
      );
    case "paragraph":
      return <p>{blocks(token.tokens, depth)}</p>;
    case "blockquote":
      return <blockquote>{blocks(token.tokens, depth)}</blockquote>;
    case "list":
      return <List list={token as Tokens.List} depth={depth} />;
    case "table":
      return <Table table={token as Tokens.Table} depth={depth} />;
    case "code":
      return (
        <CodeBlock
          code={(token as Tokens.Code).text}
          language={(token as Tokens.Code).lang?.split(/[\s{]/)[0] ?? ""}
        />
      );
    case "hr":
      return <hr />;
    case "strong":
      // A name of Python such as __init__ is not emphasis.
      if (isPythonName(token.raw)) return visible(token.raw);
      return <strong>{blocks(token.tokens, depth)}</strong>;
    case "em":
      return <em>{blocks(token.tokens, depth)}</em>;
    case "del":
      return <s>{blocks(token.tokens, depth)}</s>;
    case "codespan":
      return <code>{visible((token as Tokens.Codespan).text)}</code>;
    case "br":
      return (
        <>
          <br />
          {indentAfter(token.raw)}
        </>
      );
    case "link":
      return (
        <span>
          {blocks(token.tokens, depth)} <code>{visible((token as Tokens.Link).href)}</code>
        </span>
      );
    case "image":
      return (
        <span class="quiet">
          [image: {visible((token as Tokens.Image).text)}{" "}
          <code>{visible((token as Tokens.Image).href)}</code>]
        </span>
      );
    case "escape":
    case "text": {
      const inner = (token as Tokens.Text).tokens;
      return inner?.length ? blocks(inner, depth) : visible((token as Tokens.Text).text);
    }
    default:
      return visible(token.raw);
  }
}

/** The indentation of the line after a break, which HTML would drop: code and data in prose have it. */
const indentAfter = (raw: string): string =>
  (/\n([ \t]+)$/.exec(raw)?.[1] ?? "")
    .replaceAll("\t", "    ")
    .slice(0, 80)
    .replaceAll(" ", "\u00a0");

function List({ list, depth }: { list: Tokens.List; depth: number }) {
  const items = list.items.map((item, at) => <li key={at}>{blocks(item.tokens, depth)}</li>);
  return list.ordered ? (
    <ol start={typeof list.start === "number" ? list.start : 1}>{items}</ol>
  ) : (
    <ul>{items}</ul>
  );
}

function Table({ table, depth }: { table: Tokens.Table; depth: number }) {
  return (
    <table class="plain">
      <thead>
        <tr>
          {table.header.map((cell, at) => (
            <th key={at}>{blocks(cell.tokens, depth)}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {table.rows.map((row, at) => (
          <tr key={at}>
            {row.map((cell, place) => (
              <td key={place}>{blocks(cell.tokens, depth)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
