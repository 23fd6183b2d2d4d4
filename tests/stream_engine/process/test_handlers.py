"""Every message that the engine may be sent has a handler, whichever way standing queries are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.messages import ToEngine
from stream_engine.process.desks.own_standing import OwnStandingDesk
from stream_engine.process.desks.topic_standing import TopicStandingDesk
from stream_engine.process.service import EngineService


@pytest.mark.parametrize(("topic", "desk"), [("", OwnStandingDesk), ("standing", TopicStandingDesk)])
def test_every_message_has_one_handler(
    topic: str, desk: type, make_bench: Callable[..., Any], tmp_path: Path
) -> None:
    config = Config(
        kafka=KafkaSettings(standing_topic=topic),
        transport=TransportSettings(f"ipc://{tmp_path}/engine", f"ipc://{tmp_path}/events"),
    )
    service = EngineService(config, lambda emit: make_bench().engine)
    try:
        assert isinstance(service._standing, desk)
        assert set(service._handlers) == set(get_args(ToEngine))
        assert len({handler for handler in service._handlers.values()}) == len(service._handlers)
    finally:
        service.engine.close()
        service._server.close()
