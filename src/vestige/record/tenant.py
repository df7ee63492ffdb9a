"""Tenant: whose a run is. The key that brought it says so, never the record itself."""

from __future__ import annotations

import re
from typing import Final

DEFAULT_TENANT: Final = "default"
"""Of whatever was recorded on this machine."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_tenant(text: str) -> bool:
    """Whether a tenant can have this name: plain enough to stand in a query or a log line."""
    return _TENANT.fullmatch(text) is not None
