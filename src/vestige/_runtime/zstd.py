"""zstd: of the standard library where it has it, else its backport.

from vestige._runtime.zstd import zstd
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
