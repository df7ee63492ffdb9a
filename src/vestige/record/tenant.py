"""Tenant: the owner of a run. The API key of its upload decides it, never the record itself."""

from __future__ import annotations

from typing import Final

from vestige._runtime.re_compat import re

DEFAULT_TENANT: Final = "default"
"""The tenant of runs that were recorded on this machine."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_tenant(text: str) -> bool:
    """Return whether a text is a valid tenant name: safe in a query and in a log line."""
    return _TENANT.fullmatch(text) is not None
