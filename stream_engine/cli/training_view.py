"""A training run as a person watches it: a progress bar, and the shares right on held-out series as they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stream_engine.client.failure import Failure

if TYPE_CHECKING:
    from stream_engine.training.loop import Progress as Report


def watch_training(title: str, total: int, run: Callable[[Callable[[Report], None]], Path]) -> Path:
    """The folder that ``run`` returns; it is given the function that takes its reports. Raises a Failure for what
    it raises."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as view:
        task = view.add_task(title, total=total, loss="-")

        def report(progress: Report) -> None:
            view.update(task, completed=progress.step, loss=f"{progress.loss:.4f}")
            if progress.right:
                shares = "  ".join(f"{kind} {share:.4f}" for kind, share in progress.right.items())
                view.console.print(f"step {progress.step}, {progress.seconds:.0f} s: on held-out series: {shares}")

        try:
            return run(report)
        except (ValueError, OSError) as error:
            raise Failure(str(error)) from error
