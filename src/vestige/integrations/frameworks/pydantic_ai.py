"""PydanticAI: switch on its own spans, which integrations/frameworks/opentelemetry.py records."""

from __future__ import annotations

from types import ModuleType


def install(module: ModuleType) -> None:
    """Instrument all agents that have no settings of their own. `module` is pydantic_ai."""
    if not getattr(module.Agent, "_instrument_default", False):
        module.Agent.instrument_all()
