"""SKILLS: the texts that ship with the package, for agents and people. `vestige skill` prints them.

playbook.md     how to find a cause        instrument.md    what one gets wrong when instrumenting
"""

from __future__ import annotations

from importlib.resources import files


def read_skill(name: str) -> str:
    """Return a text of this folder."""
    return files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
