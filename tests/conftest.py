"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterator

import hypothesis
import pytest

from stream_engine.localkafka import TemporaryKafka
from tests.support.kafka_broker import KafkaBroker

# No test asserts how long something takes: a busy machine is no fault.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show a failure at once, with what this process holds: a run that is cut short still tells why."""
    if report.failed:
        descriptors, threads = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))
        held = f"{descriptors} descriptors, {threads} threads"
        print(f"\n{report.nodeid} ({report.when}; {held})\n{report.longreprtext}", file=sys.__stderr__, flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that needs the broker needs Java and minutes: `-m "not broker"` (`make quick`) leaves it out."""
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()) or "integration" in item.path.parts:
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Services that tests start, in processes of their own as well, leave the home of whoever runs them alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """The broker of KAFKA_BOOTSTRAP_SERVERS, else a real one on a free port for the length of the run."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield KafkaBroker(given)
        return
    with TemporaryKafka() as own:
        yield KafkaBroker(own.bootstrap)


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """The beginning of topic and group names that no other test, and no earlier run, uses."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{name}-{uuid.uuid4().hex[:8]}-"
