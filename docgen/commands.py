"""The command line's reference: what ``--help`` says of each command."""

from __future__ import annotations

from collections.abc import Iterator

import click

import loadgen.cli
import stream_engine.cli.main

WIDTH = 100


def commands_blocks() -> dict[str, str]:
    """One block a program, with a heading and the help of each of its commands."""
    programs = {"stream-engine": stream_engine.cli.main.cli, "loadgen": loadgen.cli.cli}
    return {name: "\n\n".join(_sections(name, command, None)) for name, command in programs.items()}


def _sections(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    context = command.make_context(name, ["--help"], parent, resilient_parsing=True, terminal_width=WIDTH)
    yield f"### {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from _sections(name, subcommand, context)
