/** What breaks while it is drawn says so in its own place; everything around it goes on working. */

import { Component, type ComponentChildren } from "preact";
import { exported } from "../api";
import { oneLine } from "./format";

interface Props {
  /** What is drawn here, for the reader. */
  what: string;
  /** Of what: when it changes, it is tried anew. */
  of: string | number;
  /** Told to the reader beside `Try again`: a way out of here. */
  close?: () => void;
  children: ComponentChildren;
}
interface Kept {
  of: string | number;
  problem: string | null;
}

export class Boundary extends Component<Props, Kept> {
  override state: Kept = { of: this.props.of, problem: null };

  static override getDerivedStateFromProps(props: Props, kept: Kept): Kept | null {
    return props.of === kept.of ? null : { of: props.of, problem: null };
  }

  static override getDerivedStateFromError(error: unknown): Partial<Kept> {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override componentDidCatch(error: unknown): void {
    console.error(error); // with its stack, for a report
  }

  override render({ what, close, children }: Props, { problem }: Kept) {
    if (problem === null) return children;
    return (
      <div class="notice bad" role="alert">
        <span>
          The page could not draw {what}. That is a fault of the page, not of the run.{" "}
          <span class="trace">{oneLine(problem, 300)}</span>
        </span>
        <button type="button" class="plain" onClick={() => this.setState({ problem: null })}>Try again</button>
        {close && <button type="button" class="plain" onClick={close}>Close</button>}
        {!exported && <a href="#/">All runs</a>}
      </div>
    );
  }
}
