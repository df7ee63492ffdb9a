/** Contain a rendering error: show it in place, and keep the rest of the page working. */

import { Component, type ComponentChildren } from "preact";
import { exported } from "../api";
import { oneLine } from "./format";

interface Props {
  /** The part of the page, as named in the error message. */
  what: string;
  /** Identity of the content; a change clears the error. */
  of: string | number;
  /** Adds a Close button beside `Try again`. */
  close?: () => void;
  children: ComponentChildren;
}
interface State {
  of: string | number;
  problem: string | null;
}

export class Boundary extends Component<Props, State> {
  override state: State = { of: this.props.of, problem: null };

  static override getDerivedStateFromProps(props: Props, state: State): State | null {
    return props.of === state.of ? null : { of: props.of, problem: null };
  }

  static override getDerivedStateFromError(error: unknown): Partial<State> {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override componentDidCatch(error: unknown): void {
    console.error(error); // with its stack, for a report
  }

  override render({ what, close, children }: Props, { problem }: State) {
    if (problem === null) return children;
    return (
      <div class="notice bad" role="alert">
        <span>
          Something went wrong while showing {what}. Your data is safe.
          <details>
            <summary>Details</summary>
            <span class="trace">{oneLine(problem, 300)}</span>
          </details>
        </span>
        <button type="button" class="plain" onClick={() => this.setState({ problem: null })}>
          Try again
        </button>
        {close && (
          <button type="button" class="plain" onClick={close}>
            Close
          </button>
        )}
        {!exported && <a href="#/">All runs</a>}
      </div>
    );
  }
}
