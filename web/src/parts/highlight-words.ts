/** Highlight searched words in the text of a run, and scroll to the first in the span pane. */

import { useEffect, useRef } from "preact/hooks";
import { tab } from "../router";
import { findWords } from "./find-words";

const RANGES_MAX = 2_000;
/** Elements with text of the run, as opposed to words of the page itself. */
const CONTENT = ".trace, .code, .markdown, .json-tree, pre, td";
/** A text is searched as one inside such an element, whatever markup is in it. */
const BLOCKS = "p, li, td, pre, h2, h3, .line, .json-row, .trace, .code";
/** What is scrolled to the first match. */
const SCROLLED = "#span-part, .transcript";

/** Highlight the words wherever the page shows them, and scroll to the first in the span pane. */
export function useHighlight(words: string, at: number): void {
  const scrolled = useRef("");
  useEffect(() => {
    const highlights = (CSS as unknown as { highlights?: Map<string, unknown> }).highlights;
    const main = document.querySelector("main");
    if (!highlights || !main || !words.trim()) {
      highlights?.delete("search");
      return;
    }
    let frame = 0;
    const mark = (): void => {
      const ranges = rangesOf(main, words);
      const Highlight_ = (globalThis as unknown as { Highlight: new (...all: Range[]) => unknown })
        .Highlight;
      highlights.set("search", new Highlight_(...ranges));
      const key = `${words} ${at}`;
      const inPane = ranges.filter((range) =>
        range.startContainer.parentElement?.closest(SCROLLED),
      );
      const phrase = words.trim().toLowerCase();
      const pane = inPane.find((range) => range.toString().toLowerCase() === phrase) ?? inPane[0];
      if ((at >= 0 || tab.peek().startsWith("hit-")) && scrolled.current !== key && pane) {
        scrolled.current = key;
        pane.startContainer.parentElement?.scrollIntoView({ block: "center" });
      }
    };
    const soon = (): void => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(mark);
    };
    const watch = new MutationObserver(soon);
    watch.observe(main, { childList: true, subtree: true, characterData: true });
    soon();
    return () => {
      watch.disconnect();
      cancelAnimationFrame(frame);
      highlights.delete("search");
    };
  }, [words, at]);
}

function rangesOf(root: Element, words: string): Range[] {
  const ranges: Range[] = [];
  for (const nodes of blocksOf(root)) {
    const text = nodes.map((node) => node.data).join("");
    for (const [from, to] of findWords(text, words)) {
      ranges.push(rangeIn(nodes, from, to));
      if (ranges.length >= RANGES_MAX) return ranges;
    }
  }
  return ranges;
}

/** The text nodes of each block, in order. */
function blocksOf(root: Element): Iterable<Text[]> {
  const blocks = new Map<Element, Text[]>();
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode as Text;
    const block = node.parentElement?.closest(BLOCKS);
    if (!block?.closest(CONTENT)) continue;
    const nodes = blocks.get(block);
    if (nodes) nodes.push(node);
    else blocks.set(block, [node]);
  }
  return blocks.values();
}

function rangeIn(nodes: readonly Text[], from: number, to: number): Range {
  const range = document.createRange();
  let start = 0;
  for (const node of nodes) {
    const end = start + node.data.length;
    if (from >= start && from < end) range.setStart(node, from - start);
    if (to > start && to <= end) range.setEnd(node, to - start);
    start = end;
  }
  return range;
}
