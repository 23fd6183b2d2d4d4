"""One that fails to close keeps no other open."""

from __future__ import annotations

import logging

import pytest

from stream_engine.util.closing import close_all


def test_what_follows_a_failure_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[int] = []

    def fail() -> None:
        raise OSError("the socket is gone")

    close_all(logging.getLogger("a"), lambda: closed.append(1), fail, lambda: closed.append(2))
    assert closed == [1, 2]
    assert "OSError: the socket is gone" in caplog.text
