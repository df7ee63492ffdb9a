"""The viewer of a home: its lasting key, and the instance that already serves it.

    key = read_viewer_key(home)
    if is_viewer_at(8642, key): ...        # open a browser there instead of serving again

The key is in the home, so a link stays valid after a restart. It is never sent to a port before the
process there has proved that it has the same key: another user's program may listen on that port.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from http.client import HTTPConnection, HTTPException
from typing import Final

from vestige._runtime import clock
from vestige.home import Home
from vestige.transfer.key_files import read_or_create_key

DEFAULT_PORT: Final = 8642
PORTS_TRIED: Final = 20
"""Ports after the default one that are tried when it is taken."""
PROOF_PATH: Final = "/instance"
NONCE_MAX: Final = 128
_PROBE_S: Final = 2.0
_RESPONSE_MAX: Final = 4096


def read_viewer_key(home: Home) -> str:
    """Return the viewer's key of a home, which is created when it is first needed."""
    return read_or_create_key(home.viewer_key, "Make its folder writable.").hex()


def prove(key: str, nonce: str) -> str:
    """Return the proof that the process which answers a nonce has the key."""
    return sign(key, "instance", nonce)


def sign(key: str, *parts: str) -> str:
    """Return a signature of texts. The first one is its purpose, so none can replace another."""
    text = json.dumps(parts).encode()
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def is_viewer_at(port: int, key: str) -> bool:
    """Return whether a viewer with this key listens on a port of this machine."""
    nonce = clock.random_bytes(24).hex()
    connection = HTTPConnection("127.0.0.1", port, timeout=_PROBE_S)
    try:
        connection.request("GET", f"{PROOF_PATH}?nonce={nonce}")
        response = connection.getresponse()
        body = json.loads(response.read(_RESPONSE_MAX))
    except (OSError, HTTPException, ValueError, RecursionError):
        return False
    finally:
        connection.close()
    proof = body.get("proof") if isinstance(body, dict) else None
    return isinstance(proof, str) and hmac.compare_digest(
        proof.encode("utf-8", "replace"), prove(key, nonce).encode()
    )
