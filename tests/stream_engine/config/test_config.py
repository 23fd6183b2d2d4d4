"""Settings: defaults, file, environment, and errors that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_engine.config.config import Config
from stream_engine.config.rules import ConfigError
from stream_engine.config.transport import TransportSettings


def load(toml: str, folder: Path, **env: str) -> Config:
    file = folder / "settings.toml"
    file.write_text(toml)
    return Config.load(file, env)


def test_defaults_need_nothing() -> None:
    config = Config.load(env={})
    assert config.kafka.dead_letter_topic == "market.bars.dlq"
    assert config.engine.preposition == "fused"
    assert config.transport.engine.startswith("ipc://")
    assert config.board.path.is_absolute()


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    toml = "[engine]\ncommit_every = 5\nstep_tokens = 64\n[api]\nport = 9000"
    config = load(toml, tmp_path, STREAM_ENGINE_ENGINE_COMMIT_EVERY="7", STREAM_ENGINE_API_HOST="0.0.0.0")
    assert (config.engine.commit_every, config.engine.step_tokens) == (7, 64)
    assert (config.api.port, config.api.host) == (9000, "0.0.0.0")


def test_kafkas_own_variable_is_known_and_ours_is_the_stronger(tmp_path: Path) -> None:
    env = {"KAFKA_BOOTSTRAP_SERVERS": "broker:9092"}
    assert Config.load(env=env).kafka.bootstrap_servers == "broker:9092"
    env["STREAM_ENGINE_KAFKA_BOOTSTRAP_SERVERS"] = "other:9092"
    assert Config.load(env=env).kafka.bootstrap_servers == "other:9092"


def test_variables_of_other_programs_are_no_settings() -> None:
    env = {
        "STREAM_ENGINE_CONFIG": "x",
        "STREAM_ENGINE_CACHE": "x",
        "STREAM_ENGINE_URL": "x",
        "ENGINE_MAX_SESSIONS": "0",
        "MY_STREAM_ENGINE_ENGINE_MAX_SESSIONS": "0",
        "STREAM_ENGINE_ENGINE_MAX_SESSIONS": "",
    }
    assert Config.load(env=env) == Config.load(env={})


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("1", True), ("false", False), ("0", False), ("True", True)]
)
def test_switches_as_people_write_them(text: str, expected: bool) -> None:
    env = {"STREAM_ENGINE_ENGINE_CHECK_INTEGRITY": text}
    assert Config.load(env=env).engine.check_integrity is expected


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = Config.load(env={"STREAM_ENGINE_BOARD_PATH": "~/board"})
    assert config.board.path == tmp_path / "board"


def test_what_risk_control_keeps_lies_where_a_restart_of_the_machine_leaves_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert Config().risk.state_file == tmp_path / "state" / "stream-engine" / "risk.json"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/state"):
        monkeypatch.setenv("XDG_STATE_HOME", unset)
        assert Config().risk.state_file == tmp_path / ".local" / "state" / "stream-engine" / "risk.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert Config().risk.state_file == tmp_path / ".local" / "state" / "stream-engine" / "risk.json"


def test_an_account_without_a_home_has_defaults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert Config().risk.state_file.name == "risk.json"


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("engine", "commit_every", "0"),
        ("engine", "commit_every", "-3"),
        ("engine", "commit_every", "many"),
        ("engine", "commit_every", "1.5"),
        ("engine", "kv_memory", "0"),
        ("engine", "kv_memory", "-1GiB"),
        ("engine", "kv_memory", "4 pies"),
        ("engine", "kv_memory", "0%"),
        ("engine", "kv_memory", "101%"),
        ("engine", "step_tokens", "0"),
        ("engine", "max_deferrals", "-1"),
        ("engine", "entry_cells", "-1"),
        ("engine", "credits", "0"),
        ("engine", "stuck_after_s", "nan"),
        ("engine", "preposition", "always"),
        ("engine", "quantization", "fp4"),
        ("engine", "no_such", "1"),
        ("engine", "quiet_records", "100000"),
        ("board", "slots", "-1"),
        ("board", "lease_s", "0"),
        ("board", "lease_s", "inf"),
        ("board", "max_sessions", "-1"),
        ("kafka", "partitions", "0"),
        ("kafka", "replication_factor", "0"),
        ("kafka", "session_timeout_ms", "0"),
        ("kafka", "offset_reset", "newest"),
        ("kafka", "bootstrap_servers", " "),
        ("transport", "engine", "udp://somewhere"),
        ("transport", "events", "/tmp/socket"),
        ("api", "port", "65536"),
        ("api", "port", "-1"),
        ("api", "workers", "0"),
        ("api", "event_queue", "0"),
        ("api", "max_body_bytes", "0"),
        ("api", "max_wait_ms", "-1"),
        ("api", "engine_timeout_s", "0"),
        ("api", "heartbeat_s", "-5"),
    ],
)
def test_errors_name_the_setting(section: str, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{section}\.{name}\b"):
        Config.load(env={f"STREAM_ENGINE_{section}_{name}".upper(): value})


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[enigne]\nmodel = 'x'", "[enigne]"),
        ("model = 'x'", "model: belongs in a section"),
        ("[engine", "settings.toml"),
        ("[engine]\nthreads = 'two'", "engine.threads"),
        ("[engine]\nthreads = []", "engine.threads"),
        ("[engine.threads]\nof = 1", "engine.threads"),
        ("[board]\npath = 3", "board.path"),
        ("[engine]\nmodle = 'x'", "engine.modle"),
    ],
)
def test_errors_of_the_file_name_section_and_setting(toml: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(toml, tmp_path)
    assert named in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe[engine]")
    for file in (tmp_path / "absent.toml", tmp_path, binary):
        with pytest.raises(ConfigError, match=str(file)):
            Config.load(file, {})


def test_settings_cannot_be_changed_later() -> None:
    with pytest.raises(AttributeError):
        Config.load(env={}).engine.step_tokens = 3  # type: ignore[misc]


def test_endpoints_are_checked_where_they_are_made() -> None:
    with pytest.raises(ConfigError, match=r"transport\.engine"):
        TransportSettings(engine="inproc://x")


@pytest.mark.parametrize(
    ("setting", "choices"),
    [
        ("kafka_offset_reset", "earliest, latest, fail"),
        ("kafka_sasl_mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("engine_preposition", "fused, idle, off"),
    ],
)
def test_a_value_that_is_none_of_the_few_is_refused_with_them_and_the_variable(setting: str, choices: str) -> None:
    variable = f"STREAM_ENGINE_{setting}".upper()
    with pytest.raises(ConfigError) as refused:
        Config.load(env={variable: "soon"})
    name = setting.replace("_", ".", 1)
    assert str(refused.value) == f"{name} = 'soon': must be one of {choices} ({variable})"
