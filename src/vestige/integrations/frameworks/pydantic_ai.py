"""PydanticAI: switch on its own spans, which integrations/frameworks/opentelemetry.py records.

The spans are made by a provider of ours: an exporter of the program does not see them, which would
send the contents of messages to its backend.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from vestige.integrations.frameworks.opentelemetry import make_private_provider


def install(module: ModuleType) -> None:
    """Instrument all agents that have no settings of their own. `module` is pydantic_ai."""
    if getattr(module.Agent, "_instrument_default", False):
        return
    settings = import_module("pydantic_ai.models.instrumented").InstrumentationSettings
    metrics = import_module("opentelemetry.metrics")
    module.Agent.instrument_all(
        settings(
            tracer_provider=make_private_provider(), meter_provider=metrics.NoOpMeterProvider()
        )
    )
