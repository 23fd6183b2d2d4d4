"""compose.yaml and the Dockerfile against the code: what they name must exist."""

from __future__ import annotations

import ast
import importlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from consumers.health import HealthFile
from query_api.app import create_app
from stream_engine.cli.commands.serve import PARTS
from stream_engine.cli.main import cli
from stream_engine.config.config import Config

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]


def test_there_is_something_to_check() -> None:
    assert {"kafka", "engine", "consumer", "api"} <= set(SERVICES)
    assert {"engine", "consumer", "api"} <= set(OURS)
    assert SERVICES["kafka"]["image"] == "apache/kafka:4.3.1"


@pytest.mark.parametrize("name", OURS)
def test_commands_and_their_options_exist(name: str) -> None:
    result = CliRunner().invoke(cli, [*SERVICES[name]["command"], "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: cli " + SERVICES[name]["command"][0])


@pytest.mark.parametrize("name", PARTS)
def test_each_part_is_watched_in_its_container(name: str) -> None:
    """Compose restarts what has ended, not what hangs."""
    assert SERVICES[name]["command"] == ["serve", "--only", name]
    assert "STREAM_ENGINE_LIFE_FOLDER" not in SERVICES[name]["environment"]


@pytest.mark.parametrize("name", OURS)
def test_variables_are_settings(name: str) -> None:
    environment = SERVICES[name]["environment"]
    config = Config.load(env=environment)
    assert config.kafka.bootstrap_servers == environment["KAFKA_BOOTSTRAP_SERVERS"]
    known = ("STREAM_ENGINE_", "KAFKA_BOOTSTRAP_SERVERS")
    assert all(variable.startswith(known) for variable in environment)
    unset = {key: value for key, value in environment.items() if key != "STREAM_ENGINE_BOARD_PATH"}
    assert Config.load(env=unset) != config, "a variable that changes nothing would be a typing error"


@pytest.mark.parametrize("name", OURS)
def test_build_targets_are_stages(name: str) -> None:
    stages = re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE)
    assert SERVICES[name]["build"]["target"] in stages


def test_images_run_as_a_plain_user() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    for stage in stages[1:]:
        if not stage.splitlines()[0].endswith(" AS base"):
            assert re.search(r"^USER (?!root)\w+$", stage, re.MULTILINE)


def test_ports_are_the_services_own_and_on_the_loopback_only() -> None:
    published = {name: service.get("ports", []) for name, service in SERVICES.items()}
    port = Config().api.port
    assert published["api"] == [f"127.0.0.1:{port}:{port}"]
    assert published["kafka"] == ["127.0.0.1:9092:9092"]
    kafka = SERVICES["kafka"]["environment"]
    assert "OUTER://127.0.0.1:9092" in kafka["KAFKA_ADVERTISED_LISTENERS"]
    assert SERVICES["api"]["environment"]["KAFKA_BOOTSTRAP_SERVERS"] in kafka["KAFKA_ADVERTISED_LISTENERS"]
    for ports in published.values():
        assert all(mapping.startswith("127.0.0.1:") for mapping in ports)


def test_endpoints_meet() -> None:
    for setting in ("STREAM_ENGINE_TRANSPORT_ENGINE", "STREAM_ENGINE_TRANSPORT_EVENTS"):
        bound = SERVICES["engine"]["environment"][setting]
        for name in ("consumer", "api"):
            assert SERVICES[name]["environment"][setting] == bound.replace("0.0.0.0", "engine")


@pytest.mark.parametrize("name", ["engine", "api"])
def test_healthchecks_run_code_that_exists(name: str) -> None:
    program, *arguments = SERVICES[name]["healthcheck"]["test"][1:]
    assert (program, arguments[0]) == ("python", "-c")
    tree = ast.parse(arguments[1])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
    paths = re.findall(r"http://[^/']+(/[^']*)", arguments[1])
    schema = create_app(Config()).openapi()
    assert all(path in schema["paths"] for path in paths)
    assert paths or SERVICES[name]["environment"]["STREAM_ENGINE_BOARD_PATH"] in arguments[1]


def test_the_consumers_healthcheck_is_a_command_that_tells_of_its_file(tmp_path: Path) -> None:
    program, *arguments = SERVICES["consumer"]["healthcheck"]["test"][1:]
    assert program == "stream-engine"
    file = tmp_path / "consumer.health"
    env = {**SERVICES["consumer"]["environment"], "STREAM_ENGINE_KAFKA_HEALTH_FILE": str(file)}
    # Nothing in the container moves the file away from where the consumer writes it.
    assert "STREAM_ENGINE_KAFKA_HEALTH_FILE" not in SERVICES["consumer"]["environment"]

    def checked() -> tuple[int, str]:
        result = CliRunner().invoke(cli, arguments, env=env)
        return result.exit_code, result.output

    status, said = checked()
    assert (status, "is not running" in said) == (1, True)
    HealthFile(file).write(time.time_ns() // 1_000_000, "welcomed", None)
    assert checked() == (0, "the consumer is well\n")


def test_waits_and_volumes_refer_to_what_is_there() -> None:
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in SERVICES
            assert wait["condition"] != "service_healthy" or "healthcheck" in SERVICES[other], (name, other)
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert SERVICES["engine"]["volumes"] == ["board:/board", "state:/state"]
    assert SERVICES["api"]["volumes"] == ["board:/board"]


def test_what_risk_control_has_closed_outlives_the_engines_container() -> None:
    folder = Config.load(env=SERVICES["engine"]["environment"]).risk.state_file.parent
    assert f"state:{folder}" in SERVICES["engine"]["volumes"]
    assert COMPOSE["volumes"]["state"] is None, "a plain volume, which the restart of a machine leaves alone"
    # A new volume takes the owner of the folder that it covers.
    owned = re.search(r"install -d -o stream -g stream -m 0770 (.*?) *\\$", DOCKERFILE, re.MULTILINE)
    assert owned is not None
    assert str(folder) in owned[1].split()
