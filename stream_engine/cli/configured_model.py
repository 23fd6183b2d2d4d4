"""The configured model's files, for commands that need them before the service runs."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

import click

from stream_engine.client.failure import SETTINGS_WRONG, Failure
from stream_engine.config.engine import EngineSettings

if TYPE_CHECKING:
    from stream_engine.model.hub.files import ModelFiles


def configured_model(settings: EngineSettings) -> ModelFiles:
    """The files as the engine itself finds them; what is fetched or unpacked first is so in a process that ends,
    because the libraries for that are large. Raises a Failure that names the setting at fault."""
    from stream_engine.model.hub.files import ModelNotFound, ModelNotHere, find_model

    try:
        try:
            return find_model(settings.model, settings.adapter, fetch=False)
        except ModelNotHere:
            click.echo(f"engine.model = {settings.model!r}: fetching or unpacking it, once")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as aside:
            return aside.submit(find_model, settings.model, settings.adapter).result()
    except ModelNotFound as error:
        name = "adapter" if error.adapter else "model"
        raise Failure(f"engine.{name} = {getattr(settings, name)!r}: {error}", SETTINGS_WRONG) from error
    except BrokenProcessPool as error:
        raise Failure(f"engine.model = {settings.model!r}: the process that prepared it was killed") from error
