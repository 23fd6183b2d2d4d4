"""Routing in the API process: by the profile of the configured model, where that is on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from query_api.errors import ApiError
from query_api.questions import QuestionRouter
from stream_engine.model.hub.files import GENERAL
from stream_engine.model.profile import EMBEDDED, Profile
from tests.support.api_service import Service

OFF_CLASS = "Who wrote Hamlet, and when?"


def test_a_model_made_for_certain_classes_refuses_other_questions() -> None:
    router = QuestionRouter.of_model("embedded")
    assert router.digest is not None
    with pytest.raises(ApiError, match="does not answer this question"):
        router.require_supported(router.route(OFF_CLASS, "AAPL"))


def test_a_general_model_takes_any_question(tmp_path: Path) -> None:
    router = QuestionRouter(lambda: Profile.read(GENERAL, tmp_path / "none", "general"))
    route = router.route(OFF_CLASS, "AAPL")
    assert route.question_class is None
    router.require_supported(route)
    assert router.route("What is the trend?", "AAPL").generic


def test_a_model_that_is_not_here_leaves_it_to_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_ENGINE_CACHE", str(tmp_path))
    router = QuestionRouter.of_model("smollm2-135m")
    assert router.digest is None
    router.require_supported(router.route(OFF_CLASS, "AAPL"))


def test_a_model_that_the_engine_fetches_meanwhile_is_found(
    make_service: Callable[..., Service], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("query_api.questions.LOOK_AGAIN_S", 0.02)
    service = make_service(model=str(folder / "model"))
    assert service.board is not None
    service.board.ready()
    assert service.ask(question="Is it going up or down?").status_code == 404, (
        "left to the engine, which has no such session"
    )
    shutil.copytree(EMBEDDED, folder / "draft")
    (folder / "draft").rename(folder / "model")  # as what is fetched or unpacked appears: whole
    deadline = time.monotonic() + 30
    while (reply := service.ask()).status_code == 404 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (reply.json()["path"], reply.json()["routed_by"]) == ("fast", "listed")
    assert service.ask(question=OFF_CLASS).status_code == 422
