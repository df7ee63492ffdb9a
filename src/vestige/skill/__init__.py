"""SKILLS: the texts that ship with the package, for agents and people. `vestige skill` prints them.

playbook.md     how to find a cause        instrument.md    what one gets wrong when instrumenting
"""

from __future__ import annotations

from importlib.resources import files


def read_skill(name: str) -> str:
    """A text of this folder, as it stands."""
    return files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
