"""Every `curl` line of the documentation, run against a real server: a route that is there, a body it takes."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from stream_engine.messages import (
    Done,
    Query,
    SessionDelete,
    Sessions,
    SessionsRequest,
    Snapshot,
    SnapshotRequest,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingQuery,
    StandingRequest,
)  # fmt: skip
from tests.support.api_service import Service, answer
from tests.support.documented import CommandLine, of_page, pages

REQUESTS = {
    str(command).partition(": ")[2]: command
    for page in pages()
    for command in of_page(page)
    if command.program == "curl" and any("localhost:8080" in word for word in command.words)
}
SERVED = re.compile(r"(?:http://)?localhost:8080")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize("command", [pytest.param(request, id=name) for name, request in REQUESTS.items()])
def test_a_documented_request_is_served(service: Service, command: CommandLine) -> None:
    standing = StandingQuery("sq-1", "*", "What is the trend?", "change", "trend")
    service.engine.on[Query] = lambda query: answer(session=query.session, question=query.question)
    service.engine.on[SessionsRequest] = lambda _: Sessions(())
    service.engine.on[SnapshotRequest] = lambda _: Snapshot(0, ())
    service.engine.on[SessionDelete] = service.engine.on[StandingDelete] = lambda _: Done("")
    service.engine.on[StandingPut] = lambda _: StandingQueries((standing,))
    service.engine.on[StandingRequest] = lambda _: StandingQueries((standing,))
    words = [SERVED.sub(str(service.http.base_url).rstrip("/"), word) for word in command.words[1:]]
    # The first line of the reply: an event stream does not end.
    with subprocess.Popen(["curl", *words, "--include"], stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        status = curl.stdout.readline().split()
        curl.terminate()
        rest = curl.stdout.read()
    assert status[1:2] in (["200"], ["201"]), (status, rest)


def test_there_are_some() -> None:
    assert len(REQUESTS) >= 4
