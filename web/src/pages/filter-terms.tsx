/** The terms of the filter of runs, to read and to insert. */

import { Menu } from "../parts/menu";

const GROUPS: [string, [string, string][]][] = [
  [
    "State",
    [
      ["is:failed", "also ok, running, crashed, cancelled, timeout, pinned"],
      ["has:finding", "also note, error, cost, conversation"],
      ["check:loop", "a finding of this check"],
    ],
  ],
  [
    "Content",
    [
      ["name:triage", "name of the run"],
      ["tool:search", "a tool that was called"],
      ["model:gpt", "a model that was called"],
      ["type:agent", "a span of this type"],
      ["component:api", "the service"],
      ["#culprit", "a note with this tag"],
      ['"card refused"', "the exact text"],
    ],
  ],
  [
    "Numbers and time",
    [
      ["cost>0.1", "dollars"],
      ["tokens>10k", "also spans, errors, logs"],
      ["duration>5s", "5s, 2m, 1h"],
      ["since:2d", "or before:2d"],
    ],
  ],
];

export function FilterTerms({ insert }: { insert: (term: string) => void }) {
  return (
    <Menu label="Terms" name="Filter terms" align="right">
      {(close) => (
        <div class="choices filter-terms">
          {GROUPS.map(([title, terms]) => (
            <section key={title}>
              <b>{title}</b>
              {terms.map(([term, meaning]) => (
                <button
                  key={term}
                  type="button"
                  class="plain"
                  onClick={() => {
                    insert(term);
                    close();
                  }}
                >
                  <code>{term}</code> <span class="quiet">{meaning}</span>
                </button>
              ))}
            </section>
          ))}
          <span class="quiet">A - before a term excludes what it matches.</span>
        </div>
      )}
    </Menu>
  );
}
