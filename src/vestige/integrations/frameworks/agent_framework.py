"""Microsoft Agent Framework: switch on its own spans, which opentelemetry.py records.

Contents are included: they stay in this process, where they are redacted before they are written.
"""

from __future__ import annotations

from types import ModuleType


def install(module: ModuleType) -> None:
    """Enable spans with contents. `module` is agent_framework.observability."""
    settings = module.OBSERVABILITY_SETTINGS
    settings.enable_instrumentation = True
    settings.enable_sensitive_data = True
