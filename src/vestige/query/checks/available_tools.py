"""Names of the tools and agents that a run's models could call.

They come from the tools of requests, from executed tool spans, from attributes of agent spans, and
from prompts that describe tools to agents that write code:

    - web_search: Search the web. Takes inputs: {...}
    def web_search(query: str) -> str:
"""

from __future__ import annotations

import re
from typing import Any

from vestige.query.checks.answer_effects import get_input, is_final_tool
from vestige.query.checks.requested_calls import get_tool_name, model_calls, parse_json
from vestige.query.evidence import Evidence

NAMES_MAX = 200
PROMPTS_MAX = 20
"""Model calls whose prompts are searched: the first of each agent describe its tools."""

_LISTED = re.compile(
    r"^[ \t]*[-*] [`*]*([a-z][a-z0-9]*(?:_[a-z0-9]+)+)[`*]*(?:\([^)\n]{0,200}\))?:", re.MULTILINE
)
_DEFINED = re.compile(
    r"^[ \t]*(?:async )?def ([a-z][a-z0-9]*(?:_[a-z0-9]+)+)\([^)\n]*\)[^:\n]*:\s*"
    r"(?:\"{3}|'{3})",
    re.MULTILINE,
)
_ATTRIBUTES = re.compile(r"tools?_names|(?:managed_agents|agents|tools)\.\d+\.name")


def find_tool_names(evidence: Evidence) -> frozenset[str]:
    """Return the names, computed once per evidence. Tools that deliver the answer do not count."""
    return evidence.once(_find_names)


def _find_names(evidence: Evidence) -> frozenset[str]:
    names: set[str] = set()
    for model in model_calls(evidence):
        names.update(model.tools)
    names.update(get_tool_name(span) for span in evidence.of_type("tool"))
    for span in evidence.run.spans:
        if span.type not in ("llm", "tool"):
            for key, value in span.attributes.items():
                if _ATTRIBUTES.search(key):
                    names.update(_names_in(value))
    for call in evidence.model_calls[:PROMPTS_MAX]:
        prompt = get_input(evidence, call)
        names.update(_LISTED.findall(prompt))
        names.update(_DEFINED.findall(prompt))
        if len(names) > NAMES_MAX:
            break
    return frozenset(name for name in names if name and not is_final_tool(name))


def _names_in(value: Any) -> list[str]:
    if not isinstance(value, str):
        return []
    parsed = parse_json(value) if value[:1] == "[" else [value]
    return [name for name in parsed if isinstance(name, str)] if isinstance(parsed, list) else []
