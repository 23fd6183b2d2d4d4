"""A deployment in threads on topics of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline import Pipeline


@pytest.fixture
def make_pipeline(kafka: Any, topic_prefix: str, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def make(engine: dict[str, Any] | None = None, **settings: Any) -> Pipeline:
        prefix = f"{topic_prefix}{len(made)}-"
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Pipeline(kafka.bootstrap, prefix, folder, engine or {}, settings))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()
