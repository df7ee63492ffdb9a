"""A recorder in memory as the process's own, for tests of integrations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vestige.emit import context
from vestige.process_recorder import default_recorder
from vestige.testing import FakeRecorder


@pytest.fixture
def recorder() -> Iterator[FakeRecorder]:
    fake = FakeRecorder()
    context.use_default(lambda: fake)
    context.SPAN.set(None)
    yield fake
    context.SPAN.set(None)
    fake.close()
    context.use_default(default_recorder)
