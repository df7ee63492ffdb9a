"""`vestige transcript`, as a person calls it."""

from __future__ import annotations

from support.commands import vestige
from support.refund_desk import record_desk
from vestige.home import Home


def test_a_run_with_prompt_segments_is_shown(home: Home) -> None:
    """Segments are read while the answer is rendered, so the store must be open until then."""
    record_desk(home)

    result = vestige("transcript", "r3", "--home", str(home.root))

    assert result.exit_code == 0, result.output
    assert "prompt: persona(59) · tool:lookup_order(92)" in result.output
