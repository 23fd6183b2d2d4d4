"""Every command line of the documentation is one that its program takes: options, settings, models, targets."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from loadgen.cli import cli as loadgen
from stream_engine.cli.main import cli as stream_engine
from stream_engine.config.config import Config
from stream_engine.model.hub.catalogue import CATALOGUE
from stream_engine.model.hub.files import ModelNotFound, ModelNotHere, find_model
from tests.support.documented import PROGRAMS, ROOT, CommandLine, blocks, commands, of_help, of_page, pages

GROUPS = {"stream-engine": stream_engine, "loadgen": loadgen}
ALL = [
    *(command for page in pages() for command in of_page(page)),
    *(command for name, group in GROUPS.items() for command in of_help(group, name)),
]
SETTINGS = {
    f"STREAM_ENGINE_{section.name}_{setting.name}".upper()
    for section in fields(Config)
    for setting in fields(getattr(Config(), section.name))
}
PLACEHOLDER = re.compile(r"[A-Z]{1,6}$|\.\.\.|~/")
"""A value that stands for the reader's own: `FOLDER`, `X`, `...`, a folder of their home."""
MODEL_OPTIONS = {"model", "base", "name"}


def of(*programs: str) -> list[Any]:
    seen = {str(command).partition(": ")[2]: command for command in ALL if command.program in programs}
    return [pytest.param(command, id=str(command)) for command in seen.values()]


def parsed(
    command: click.Command, name: str, words: list[str], parent: click.Context | None = None
) -> click.Context:
    """The innermost command's context, once every group and the command have taken their arguments."""
    context = command.make_context(name, words, parent=parent)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if rest:
            name, sub, rest = command.resolve_command(context, rest)  # type: ignore[assignment]
            assert sub is not None
            return parsed(sub, name, rest, context)
    return context


def test_the_documentation_has_commands_of_each_kind() -> None:
    """A reader of pages that finds none would make the tests below pass."""
    assert {command.program for command in ALL} >= {"stream-engine", "loadgen", "make", "python", "pytest", "curl"}
    in_readme = [command.words for command in ALL if command.where == "README.md"]
    assert ("make", "demo") in in_readme
    assert ("STREAM_ENGINE_ENGINE_MODEL", "smollm2-135m") in [
        pair for command in ALL for pair in command.environment
    ]


def test_a_block_of_a_shell_has_no_unknown_program() -> None:
    assert [str(command) for command in ALL if command.program not in PROGRAMS] == []


@pytest.mark.parametrize("command", of(*GROUPS))
def test_the_command_line_takes_it(command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in command.words:  # files of the reader's own
        if re.fullmatch(r"[\w-]+\.(csv|json|jsonl|toml|txt)(\.gz)?", word):
            Path(word).write_text("")
    words = [word for word in command.words[1:] if word != "..."]
    try:
        context = parsed(GROUPS[command.program], command.program, words)
    except click.MissingParameter:
        if not command.named_only:
            raise
        return
    adapter = str(context.params.get("adapter") or "")
    for name in MODEL_OPTIONS & set(context.params) if context.info_name != "run" else ():
        if model := context.params[name]:
            resolves(str(model), adapter)


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=str(command)) for command in ALL if command.environment]
)
def test_what_is_set_in_front_of_a_command_is_read_by_it(command: CommandLine) -> None:
    environment = dict(command.environment)
    source = "".join(path.read_text() for path in (ROOT / "Makefile", ROOT / "compose.yaml", *sources()))
    for name, value in environment.items():
        assert name in SETTINGS or re.search(rf"\b{name}\b", source), f"nothing reads {name}"
        if PLACEHOLDER.search(value):
            environment[name] = ""
    config = Config.load(None, environment)
    if "STREAM_ENGINE_ENGINE_MODEL" in environment:
        resolves(config.engine.model, config.engine.adapter)


def sources() -> list[Path]:
    rooms = ("stream_engine", "query_api", "consumers", "loadgen", "tests")
    return [path for name in rooms for path in (ROOT / name).rglob("*.py")]


def resolves(model: str, adapter: str) -> None:
    """A model as `serve` looks for it; one that is not on this machine may be fetched."""
    if PLACEHOLDER.search(model):
        return
    try:
        find_model(model, adapter, fetch=False)
    except ModelNotHere:
        pass
    except ModelNotFound as error:
        if error.adapter or model not in CATALOGUE:
            raise


@pytest.mark.parametrize("command", of("make"))
def test_make_has_the_target_and_the_variables(command: CommandLine) -> None:
    makefile = (ROOT / "Makefile").read_text()
    given = [word.partition("=")[0] for word in command.words[1:] if "=" in word]
    for name in given:
        assert re.search(rf"^{name} \?=", makefile, re.M), f"the Makefile has no {name}"
    targets = [word for word in command.words[1:] if "=" not in word and not word.startswith("-")]
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony is not None
    assert set(targets) <= set(phony[1].split())


@pytest.mark.parametrize("command", of("python"))
def test_a_module_is_there_and_takes_the_options(command: CommandLine) -> None:
    assert command.words[1] == "-m"
    module, options = command.words[2], [word for word in command.words[3:] if word.startswith("-")]
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    files = [Path(found.origin)]
    if found.submodule_search_locations:
        assert importlib.util.find_spec(f"{module}.__main__") is not None
        files = list(Path(found.origin).parent.glob("*.py"))
    source = "".join(file.read_text() for file in files)
    for option in options:  # the modules are slow to import, and have no group to ask
        assert f'"{option}"' in source, f"{module} has no {option}"


@pytest.mark.parametrize("command", of("pytest"))
def test_a_test_that_is_named_is_there(command: CommandLine) -> None:
    for word in command.words[1:]:
        if word.startswith("tests"):
            assert (ROOT / word.partition("::")[0]).exists()


def test_extras_are_the_packages_own() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in (word for command in ALL for word in command.words):
        if named := re.search(r"stream-engine\[([\w,-]+)\]", word):
            assert set(named[1].split(",")) <= set(extras)


def test_settings_in_files_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for page in pages():
        for language, content in blocks(page.read_text(encoding="utf-8")):
            if language == "toml":
                file.write_text(content)
                Config.load(file, {})


@pytest.mark.parametrize(
    "line", ["models list", "kafka status", "health engine", "models get nothing", "doctor --help"]
)
def test_cheap_ones_run(line: str, tmp_path: Path) -> None:
    """A command that nobody listens for ends in a line, never in a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "stream_engine.cli", *line.split()],
        env={"PATH": "", "HOME": str(tmp_path), "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A=b stream-engine --config x.toml serve  # why", [("stream-engine", "--config", "x.toml", "serve")]),
        ("make lint && make types", [("make", "lint"), ("make", "types")]),
        ("loadgen a|b", [("loadgen", "a"), ("loadgen", "b")]),
        ("loadgen/   a folder", []),
        ("ls -l | sort", []),
    ],
)
def test_lines_are_read_as_a_shell_reads_them(line: str, words: list[tuple[str, ...]]) -> None:
    assert [command.words for command in commands("here", line, False)] == words


@pytest.mark.parametrize("line", ["stream-engine serve --no", "stream-engine sevre", "stream-engine calibrate"])
def test_a_wrong_one_would_be_seen(line: str) -> None:
    (command,) = commands("here", line, False)
    with pytest.raises(click.UsageError):
        parsed(GROUPS[command.program], command.program, list(command.words[1:]))
