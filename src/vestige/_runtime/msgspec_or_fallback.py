"""msgspec, or the pure Python replacement where it cannot be imported.

from vestige._runtime.msgspec_or_fallback import msgspec
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import msgspec
else:
    try:
        import msgspec
    except ImportError:  # not installed, or built for another Python
        from vestige._runtime import msgspec_fallback as msgspec

__all__ = ["msgspec"]
