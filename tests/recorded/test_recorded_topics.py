"""What an earlier version left on a broker and in its files, taken over by today's service: three processes, over
HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer

from tests.recorded import house
from tests.recorded.recording import (
    CALIBRATION,
    COMMITTED,
    RISK,
    Recording,
    WrittenRecord,
    read_committed,
    read_topics,
    remove_topics,
    replay,
)

PATIENCE_S = 180.0
AS_BEFORE = ("id", "state", "data_version", "bars", "last_event_time", "offsets", "standing_queries", "swaps")
OF_THE_MODEL = ("tokens", "token_hash", "ready_token")


@dataclass(slots=True)
class Successor:
    """What today's service says and writes after it has taken over, and after one more bar of each session."""

    recording: Recording
    sessions: dict[str, Any] = field(default_factory=dict)
    standing_queries: list[Any] = field(default_factory=list)
    calibration: dict[str, Any] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)
    next_versions: dict[str, int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    later_sessions: dict[str, Any] = field(default_factory=dict)
    records: list[WrittenRecord] = field(default_factory=list)
    committed: list[dict[str, Any]] = field(default_factory=list)

    def topic(self, name: str) -> str:
        return str(self.recording.settings[f"STREAM_ENGINE_KAFKA_{name}_TOPIC"])

    def written_since(self, topic: str) -> list[WrittenRecord]:
        """What is in a topic behind that which was recorded, which is still there as it was, but for what the
        broker may have compacted since: the newest of each key stays."""
        known = {(record.partition, record.offset): record for record in self.recording.records(topic)}
        now = [record for record in self.records if record.topic == topic]
        since = [record for record in now if (record.partition, record.offset) not in known]
        kept = [record for record in now if (record.partition, record.offset) in known]
        assert kept == [record for record in known.values() if record in kept]
        newest = {(record.partition, record.key): record for record in known.values()}
        replaced = {(record.partition, record.key) for record in since}
        assert all(record in kept for key, record in newest.items() if key not in replaced)
        return since


def until(what: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited in vain: {why}"
        time.sleep(0.1)
    return found


def listed(client: httpx.Client, what: str) -> list[Any]:
    reply = client.get(f"/v1/{what}")
    return list(reply.json()["data"]) if reply.status_code == 200 else []


def settings(recording: Recording, folder: Path) -> dict[str, str]:
    """As recorded, in a folder of this test: the risk file is told that its deployment lies there."""
    board = folder / "ready.board"
    board.write_bytes(recording.board())
    ((_, gates),) = recording.json(RISK).items()
    (folder / RISK).write_text(json.dumps({str(board): gates}))
    same = {"STREAM_ENGINE_ENGINE_CALIBRATION": str(recording.folder / CALIBRATION)}
    return {
        **recording.settings,
        **(same if recording.of_todays_model else {}),
        "STREAM_ENGINE_BOARD_PATH": str(board),
        "STREAM_ENGINE_RISK_STATE_FILE": str(folder / RISK),
    }


def next_bars(successor: Successor, bootstrap: str) -> None:
    """A bar of each session that bars feed, a day later than all that it has."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for session in successor.sessions.values():
        ((place, _),) = session["offsets"].items()
        topic, _, partition = place.rpartition("/")
        if topic == successor.topic("BARS"):
            at, *_, close, volume = session["last_bars"][-1]
            later = {"t": (at + 86_400_000_000) // 1000, "o": close, "h": close, "l": close, "c": close}
            value = json.dumps(later | ({} if volume is None else {"v": volume})).encode()
            sent = producer.send(topic, key=session["id"].encode(), value=value, partition=int(partition))
            successor.next_versions[session["id"]] = sent.get(PATIENCE_S).offset + 1
            successor.ends[topic, int(partition)] = successor.next_versions[session["id"]]
    producer.close()


@pytest.fixture(scope="module", params=Recording.all(), ids=str)
def successor(
    request: pytest.FixtureRequest, kafka: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Successor]:
    recording: Recording = request.param
    successor = Successor(recording)
    state = recording.state
    used = settings(recording, tmp_path_factory.mktemp("recorded"))
    topics = state["topics"]
    remove_topics(kafka.bootstrap, topics)
    house.ensure_topics(house.Config.load(env=used | {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}).kafka)
    replay(recording, kafka.bootstrap)
    places = [(place["topic"], place["partition"]) for place in recording.json(COMMITTED)]
    assert read_committed(kafka.bootstrap, state["group"], places) == recording.json(COMMITTED)
    with (
        house.PrivateService(house.Options(None, "info"), kafka.bootstrap, used) as service,
        httpx.Client(base_url=service.url, timeout=30.0, trust_env=False) as client,
    ):
        service.await_ready(PATIENCE_S)
        successor.sessions = {row["id"]: row for row in listed(client, "sessions")}
        successor.standing_queries = listed(client, "standing-queries")
        successor.calibration = client.get("/v1/calibration").json()
        for asked in state["answers"]:
            path = asked["session"].replace("/", "%2F").replace("=", "%3D")
            body = {"question": asked["question"], "path": "full"}
            successor.answers.append(client.post(f"/v1/sessions/{path}/query", json=body).json())
        next_bars(successor, kafka.bootstrap)

        def later() -> dict[str, Any] | None:
            found = {row["id"]: row for row in listed(client, "sessions")}
            versions = {name: found[name]["data_version"] for name in successor.next_versions if name in found}
            return found if versions == successor.next_versions else None

        successor.later_sessions = until(later, "the new bars are applied")
        until(
            lambda: all(
                point["offset"] == successor.ends[point["topic"], point["partition"]]
                for point in read_committed(kafka.bootstrap, state["group"], successor.ends)
            ),
            "and committed",
        )
        assert service.stop() == 0, service.log_tail()
        successor.records = read_topics(kafka.bootstrap, topics)
        successor.committed = read_committed(kafka.bootstrap, state["group"], places)
    yield successor
    remove_topics(kafka.bootstrap, topics)


def test_sessions_come_back_at_the_same_versions_with_the_same_tokens(successor: Successor) -> None:
    recorded = {row["id"]: row for row in successor.recording.state["sessions"]}
    assert set(successor.sessions) == set(recorded)
    names = AS_BEFORE + (OF_THE_MODEL if successor.recording.of_todays_model else ())
    for name, before in recorded.items():
        now = successor.sessions[name]
        assert {field: now[field] for field in names} == {field: before[field] for field in names}
        assert now["last_bars"] == before["last_bars"]


def test_standing_queries_come_back(successor: Successor) -> None:
    before = successor.recording.state["standing_queries"]
    now = zip(successor.standing_queries, before, strict=True)
    assert [{name: found[name] for name in was} for found, was in now] == before


def test_the_full_path_answers_as_before(successor: Successor) -> None:
    if not successor.recording.of_todays_model:
        pytest.skip("another model answers otherwise")
    for now, before in zip(successor.answers, successor.recording.state["answers"], strict=True):
        same = [name for name in before if name != "gap"]
        assert {name: now[name] for name in same} == {name: before[name] for name in same}
        assert now["gap"] == pytest.approx(before["gap"], abs=0.01)


def test_risk_control_goes_on_where_it_was(successor: Successor) -> None:
    if not successor.recording.of_todays_model:
        pytest.skip("what was found out about another model does not apply")
    before, now = successor.recording.state["calibration"], successor.calibration
    assert now["file"] == before["file"]
    assert now["classes"] == before["classes"]


def test_no_answer_is_told_again(successor: Successor) -> None:
    last: dict[bytes | None, Any] = {}
    for record in successor.recording.records(successor.topic("ANSWERS")):
        last[record.key] = None if record.value is None else json.loads(record.value)
    versions = {row["id"]: row["data_version"] for row in successor.recording.state["sessions"]}
    news = [json.loads(record.value or b"") for record in successor.written_since(successor.topic("ANSWERS"))]
    for answer in news:
        session = answer["session"]
        assert answer["session_version"] == successor.next_versions[session] > versions[session]
        before = last[f"{session}|{answer['query']}".encode()]
        assert (answer["initial"], answer["previous"]) == (False, before["answer"])
        assert answer["answer"] != answer["previous"] or answer["query"] == "where"
    each_time = [answer["session_version"] for answer in news if answer["query"] == "where"]
    assert each_time == [successor.next_versions["AAPL"]]


def test_nothing_is_dead_lettered_or_registered_again(successor: Successor) -> None:
    for name in ("BARS", "TRADES", "STANDING"):
        assert successor.written_since(f"{successor.topic(name)}.dlq") == []
    assert successor.written_since(successor.topic("STANDING")) == []
    assert len(successor.written_since(successor.topic("BARS"))) == len(successor.next_versions) > 3


def test_sessions_and_offsets_go_on_from_there(successor: Successor) -> None:
    for name, version in successor.next_versions.items():
        before, now = successor.sessions[name], successor.later_sessions[name]
        assert now["data_version"] == version
        assert now["bars"] == before["bars"] + 1 or now["swaps"] == before["swaps"] + 1
    before = {
        (place["topic"], place["partition"]): place["offset"] for place in successor.recording.json(COMMITTED)
    }
    after = {(place["topic"], place["partition"]): place["offset"] for place in successor.committed}
    assert all(after[place] >= offset for place, offset in before.items())
    assert after[successor.topic("BARS"), 0] > before[successor.topic("BARS"), 0]
