"""The ready board hammered by real processes: one writer that commits without pause, two readers.

This file is also the program of those processes (see ``main``). Each session walks through numbered states; a
state is published with one or both entries, or is an invalid one, or is a closed session. Beside the board
the writer keeps, for each session, the number of the state that it began to make live and of the last one that
it finished. A reader notes the finished one before it asks and the begun one after the reply: an answer is
right if and only if its state lies between the two. Every field is a function of (session, entry, state) and
of how often the slot was rewritten in that state, so that any mixture of two writes shows.
"""

from __future__ import annotations

import json
import mmap
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_engine.board.layout import BoardMeta, SlotRecord
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import ClassGate, FastAnswer
from stream_engine.decision.reading import Miss
from stream_engine.decision.ready import Evidence, ReadyDistribution, StateFlag

SESSIONS = 3
ENTRIES = ("", "is it going up?")
READS = 500_000
READERS = 2
REWRITES = 50
LEASE_S = 1.0
READS_AFTER_DEATH = 5_000
PATIENCE_S = 240.0
META = BoardMeta(
    topics=("t",),
    model="hammer",
    profile_digest="",
    calibration_digest="",
    window_bars=8,
    classes={"trend": ClassGate(1.0)},
    answers={0: FastAnswer("trend", "up")},
    generic_class="trend",
    noise=0.0,
)
FIRST_STATE = {"old": 1, "new": 1_000_000_000}


def expected(session: int, entry: int, state: int, variant: int = 0) -> SlotRecord:
    """The one slot that (session, entry, state, variant) may ever show."""
    seed = variant * 0x27D4EB2F165667C5 + (
        state * 0x9E3779B97F4A7C15 + session * 0xC2B2AE3D27D4EB4F + entry * 0x165667B19E3779F9
    )
    seed &= (1 << 64) - 1
    low, high = seed & 0x7FFFFFFF, seed >> 33
    return SlotRecord(
        ENTRIES[entry],
        ReadyDistribution(high, low ^ high, seed * 0.5, seed * 0.25, seed * 2.0, seed * 4.0, low),
        Evidence(
            session_version=state,
            topic_index=session,
            partition=entry,
            offset=state + 1,
            event_time_us=seed >> 1,
            record_time_ms=seed >> 2,
            bars=variant,
            flags=StateFlag(seed & 3),
        ),
        token_hash=seed,
        ready_time_ms=seed >> 3,
    )


def map_states(path: Path) -> memoryview:
    """Two words a session: state begun, state finished."""
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 16 * SESSIONS)).cast("Q")


def write(folder: Path, life: str) -> None:
    """Commits for ever. Only a signal ends it."""
    path = folder / f"{life}.states"
    path.write_bytes(bytes(16 * SESSIONS))
    states = map_states(path)
    state = FIRST_STATE[life]
    writer = BoardWriter.create(folder / "ready.board", META, SESSIONS, 4 * SESSIONS, READERS, LEASE_S)
    handles = [writer.open_session(f"s{n}") for n in range(SESSIONS)]
    print("writing", flush=True)
    while True:
        writer.heartbeat()
        for session in range(SESSIONS):
            begun, finished = 2 * session, 2 * session + 1
            both = [expected(session, entry, state) for entry in range(2)]
            states[begun] = state
            match state % 16:
                case 3:  # the live state moves, and is pre-positioned later
                    writer.invalidate(handles[session])
                    states[finished] = state
                    writer.add(handles[session], both)
                case 5:  # one bank written over and over while its epoch is live: only the sequence lock helps
                    writer.publish(handles[session], both)
                    states[finished] = state
                    for variant in range(1, REWRITES):
                        writer.add(
                            handles[session], [expected(session, entry, state, variant) for entry in range(2)]
                        )
                case 7:
                    writer.publish(handles[session], both[:1])
                    states[finished] = state
                    writer.add(handles[session], both)
                case 11:
                    writer.close_session(handles[session])
                    states[finished] = state
                    handles[session] = writer.open_session(f"s{session}")
                case 13:
                    writer.publish(handles[session], both)
                    states[finished] = state
                    writer.remove(handles[session], ENTRIES[state // 16 % 2])
                case 15:
                    writer.invalidate(handles[session])
                    states[finished] = state
                case _:
                    writer.publish(handles[session], both)
                    states[finished] = state
        state += 1


class Checker:
    """Reads and judges; what is wrong is kept for the report."""

    def __init__(self, folder: Path, worker: int) -> None:
        self.reader = BoardReader.open(folder / "ready.board", worker)
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.distinct: set[int] = set()
        self.turn = worker

    def read(self, states: memoryview) -> ReadySlot | Miss:
        self.turn += 1
        session, entry = self.turn % SESSIONS, self.turn // SESSIONS % 2
        finished_before = states[2 * session + 1]
        result = self.reader.read(f"s{session}", ENTRIES[entry])
        begun_after = states[2 * session]
        if isinstance(result, Miss):
            self.outcomes[result.name] += 1
            return result
        state = result.evidence.session_version
        self.outcomes["HIT"] += 1
        self.distinct.add(state)
        self.reader.consume(result)
        record = expected(session, entry, state, result.evidence.bars)
        shown = (result.ready, result.evidence, result.token_hash, result.ready_time_ms)
        if shown != (record.ready, record.evidence, record.token_hash, record.ready_time_ms):
            self.wrong.append(f"torn: {result}")
        if not finished_before <= state <= begun_after:
            self.wrong.append(f"stale: state {state}, live ones {finished_before}..{begun_after}")
        return result


def said(line_expected: str) -> bool:
    """Whether the parent has sent its line; never waits."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and sys.stdin.readline().strip() == line_expected


def read(folder: Path, worker: int) -> None:
    """Hammers the living board, then the dead one, then the next one; prints one report a phase."""
    checker = Checker(folder, worker)
    states = map_states(folder / "old.states")
    reads, killed = 0, False
    while not killed:  # at least READS, and on until the writer is known to be dead
        for _ in range(1000):
            checker.read(states)
        reads += 1000
        if reads == READS:
            report = {"outcomes": checker.outcomes, "distinct": len(checker.distinct), "reads": reads}
            print(json.dumps(report), flush=True)
        killed = reads >= READS and said("killed")
    while checker.read(states) is not Miss.LEASE:
        pass  # the dead engine's last lease: its answers are still its live ones
    after = Counter(str(checker.read(states)) for _ in range(READS_AFTER_DEATH))
    print(json.dumps({"after": after, "wrong": checker.wrong[:5]}), flush=True)
    while not said("replaced"):
        time.sleep(0.01)
    states = map_states(folder / "new.states")
    while not isinstance(result := checker.read(states), ReadySlot):
        time.sleep(0.001)
    for _ in range(READS_AFTER_DEATH):
        checker.read(states)
    print(json.dumps({"state": result.evidence.session_version, "wrong": checker.wrong[:5]}), flush=True)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line of a process, or a failure where none comes."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_S)[0], "the process has stopped making progress"
    line = process.stdout.readline()
    assert line, f"the process has ended: {process.wait()}"
    return line


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Started processes; all are dead afterwards."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_no_torn_or_stale_read_and_nothing_after_a_kill(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    writer = start("write", str(tmp_path), "old")
    processes.append(writer)
    assert line_of(writer) == "writing\n"
    readers = [start("read", str(tmp_path), str(worker)) for worker in range(READERS)]
    processes.extend(readers)

    reports = [json.loads(line_of(reader)) for reader in readers]
    assert sum(report["reads"] for report in reports) >= 1_000_000
    for report in reports:
        assert report["outcomes"]["HIT"] > READS / 10, report
        assert report["distinct"] > 100, report  # the writer was committing while it was read
        assert report["outcomes"]["INVALID"] > 0, report

    writer.send_signal(signal.SIGKILL)
    writer.wait()
    for reader in readers:
        tell(reader, "killed")
    for report in [json.loads(line_of(reader)) for reader in readers]:
        assert report == {"after": {str(Miss.LEASE): READS_AFTER_DEATH}, "wrong": []}

    successor = start("write", str(tmp_path), "new")
    processes.append(successor)
    assert line_of(successor) == "writing\n"
    for reader in readers:
        tell(reader, "replaced")
    for report in [json.loads(line_of(reader)) for reader in readers]:
        assert report["state"] >= FIRST_STATE["new"]
        assert report["wrong"] == []
    assert [reader.wait() for reader in readers] == [0] * READERS


def main(role: str, folder: str, which: str) -> None:
    if role == "write":
        write(Path(folder), which)
    else:
        read(Path(folder), int(which))


if __name__ == "__main__":
    main(*sys.argv[1:])
