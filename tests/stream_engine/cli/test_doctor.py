"""Doctor's looks at this machine: what is right, what is not, and that each problem has its remedy."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumers.inspection import check_clock
from stream_engine.board.layout import BoardMeta
from stream_engine.board.writer import BoardWriter
from stream_engine.cli import doctor
from stream_engine.cli.doctor import ModelCheck
from stream_engine.config.board import BoardSettings
from stream_engine.config.engine import EngineSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.util.findings import Finding, Level
from stream_engine.util.ports import free_port

META = BoardMeta(
    topics=(),
    model="test",
    profile_digest="",
    calibration_digest="",
    window_bars=32,
    classes={},
    answers={},
    generic_class="trend",
    noise=0.0,
)


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


def levels(findings: Iterator[Finding]) -> list[Level]:
    found = list(findings)
    assert all(finding.remedy for finding in found if finding.level is not Level.OK)
    return [finding.level for finding in found]


def test_this_environment_is_right() -> None:
    assert levels(doctor.check_python()) == [Level.OK, Level.OK]


def test_packages_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"polars": "1.0", "msgspec": None}
    installed = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda name: versions.get(name, installed(name)))
    found = list(doctor.check_python())[1]
    assert found.level is Level.PROBLEM
    assert "polars 1.0 is not >=2.1" in found.message
    assert "msgspec is missing" in found.message


def test_a_machine_without_torch_is_warned_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: None if name == "torch" else "1")
    found = only(ModelCheck(EngineSettings()).findings(1.0))
    assert found.level is Level.WARNING
    assert "stream-engine[engine]" in found.remedy


def test_it_says_how_many_symbols_have_room() -> None:
    enough = only(doctor.check_memory(EngineSettings(kv_memory="1GiB")))
    assert (enough.level, enough.subject) == (Level.OK, "memory")
    assert "499 symbols have room in 1022.4 MiB" in enough.message
    too_little = only(doctor.check_memory(EngineSettings(kv_memory="1MiB")))
    assert (too_little.level, too_little.subject) == (Level.PROBLEM, "memory")
    assert "one session needs" in too_little.message
    more_than_there_is = only(doctor.check_memory(EngineSettings(kv_memory="4TiB")))
    assert more_than_there_is.level is Level.WARNING


def test_a_calibration_of_another_model_is_a_problem_before_the_start(tmp_path: Path) -> None:
    none = only(doctor.check_calibration(EngineSettings(calibration="none")))
    assert (none.level, none.subject) == (Level.OK, "calibration")
    (tmp_path / "made.json").write_text("{}")
    found = only(doctor.check_calibration(EngineSettings(calibration=str(tmp_path / "made.json"))))
    assert (found.level, found.subject) == (Level.PROBLEM, "calibration")
    assert "made.json" in found.message
    assert found.remedy


def test_a_model_folder_without_profile_is_a_problem(tmp_path: Path) -> None:
    found = only(ModelCheck(EngineSettings(model=str(tmp_path))).findings(60.0))
    assert (found.level, found.subject) == (Level.PROBLEM, "model")
    assert str(tmp_path) in found.message


def test_a_slow_model_is_told_and_ended() -> None:
    check = ModelCheck(EngineSettings())
    assert [(finding.level, finding.subject) for finding in check.findings(0.0)] == [(Level.WARNING, "load")]
    assert check._process is not None
    assert check._process.returncode is not None


def test_a_board_is_absent_alive_or_left_behind(tmp_path: Path) -> None:
    settings = BoardSettings(path=tmp_path / "ready.board", slots=8, max_sessions=4, lease_s=60.0)
    found = only(doctor.check_board(settings))
    assert (found.level, "none yet" in found.message) == (Level.OK, True)

    writer = BoardWriter.create(settings.path, META, 4, 8, 1, settings.lease_s)
    writer.heartbeat()
    found = only(doctor.check_board(settings))
    assert (found.level, "an engine writes it" in found.message) == (Level.OK, True)

    writer.close()
    dead = BoardWriter.create(settings.path, META, 4, 8, 1, 1e-9)
    assert levels(doctor.check_board(settings)) == [Level.WARNING]
    dead.close()


def test_a_board_of_another_kind_is_a_warning_or_problem(tmp_path: Path) -> None:
    path = tmp_path / "ready.board"
    path.write_bytes(b"no board" * 100)
    assert levels(doctor.check_board(BoardSettings(path=path))) != [Level.OK]


def test_a_place_that_is_not_writable_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert levels(doctor.check_board(BoardSettings(path=tmp_path / "a" / "b"))) == [Level.PROBLEM]
    endpoints = TransportSettings(f"ipc://{tmp_path}/engine", f"ipc://{tmp_path}/events")
    assert levels(doctor.check_transport(endpoints)) == [Level.PROBLEM, Level.PROBLEM]


def test_endpoints_are_free_or_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as busy, socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        endpoints = TransportSettings(f"ipc://{tmp_path}/engine", f"tcp://0.0.0.0:{busy.getsockname()[1]}")
        messages = [finding.message for finding in doctor.check_transport(endpoints)]
        assert messages[0].endswith("an engine listens")
        assert messages[1].endswith("something listens there")
    # The socket's file stays behind, as a killed engine leaves it.
    messages = [finding.message for finding in doctor.check_transport(endpoints)]
    assert [message.rpartition(" ")[2] for message in messages] == ["free", "free"]


def test_a_socket_path_that_is_too_long_is_a_problem(tmp_path: Path) -> None:
    endpoints = TransportSettings(f"ipc://{tmp_path}/{'x' * 120}", f"ipc://{tmp_path}/events")
    assert levels(doctor.check_transport(endpoints)) == [Level.PROBLEM, Level.OK]


@contextmanager
def serving(status: int) -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", free_port()), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_the_port_is_free_ours_or_anothers() -> None:
    expected = {200: Level.OK, 503: Level.WARNING, 404: Level.PROBLEM}
    for status, level in expected.items():
        with serving(status) as url:
            assert levels(doctor.check_api(url)) == [level]
    assert "free" in only(doctor.check_api(url)).message
    with socket.create_server(("127.0.0.1", 0)) as mute:
        found = only(doctor.check_api(f"http://127.0.0.1:{mute.getsockname()[1]}"))
        assert found.level is Level.PROBLEM
        assert "does not answer" in found.message


def test_a_record_from_the_future_tells_of_a_wrong_clock() -> None:
    assert levels(check_clock(None)) == [Level.OK]
    assert levels(check_clock(10_000, 11_000)) == [Level.OK]
    found = only(check_clock(70_000, 10_000))
    assert found.level is Level.WARNING
    assert "60.0 s in the future" in found.message
