"""What risk control has decided and on what evidence, in one small file, so that a restart changes neither."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from stream_engine.messages.bounds import UNREADABLE, Finite, Share
from stream_engine.risk.checked_points import MAX_POINTS, Point
from stream_engine.util.atomic_file import write_atomically
from stream_engine.util.bounded_file import read_bounded
from stream_engine.util.lockfile import Held, held

log = logging.getLogger(__name__)

PATIENCE_S = 0.5
"""How long to wait for another engine's write: the engine's thread waits, and its lease must not run out."""

_State = Literal["OPEN", "RAISED", "CLOSED"]
_Checks = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_Sum = Annotated[float, msgspec.Meta(ge=0.0, le=1e100)]
"""Far above any threshold; a few of them are still a number."""
MAX_BYTES = 64 * 2**20
"""Of the file: hundreds of deployments, each with all its points."""


class KeptClass(msgspec.Struct, frozen=True):
    """A question class. ``checks``, ``false_accepts`` and the detector's ``sums`` are those under ``tau`` and for
    ``budget``; ``past_*`` came before. ``points`` were checked, the oldest first."""

    state: _State = "OPEN"
    tau: Finite | None = None
    budget: Share | None = None
    checks: _Checks = 0
    false_accepts: _Checks = 0
    past_checks: _Checks = 0
    past_false_accepts: _Checks = 0
    sums: Annotated[list[_Sum], msgspec.Meta(max_length=64)] = []
    points: Annotated[list[Point], msgspec.Meta(max_length=MAX_POINTS)] = []

    def __post_init__(self) -> None:
        if any(not 0 <= hashed < 2**64 for _, hashed in self.points):
            raise ValueError("a decision point has a hash of 64 bits")
        if self.false_accepts > self.checks or self.past_false_accepts > self.past_checks:
            raise ValueError("more false accepts than checks")


_Kept = dict[str, dict[str, _State | dict[str, KeptClass]]]
"""Classes by deployment and gate: they say nothing of another one. Files of old have states by gate and class."""


class RiskMemory:
    """Question classes, kept for one deployment (whatever it is called by, that names no other one which runs
    beside it) and one gate. Others may share the file."""

    def __init__(self, path: Path, deployment: str, gate: str) -> None:
        self._path = path
        self._deployment = deployment
        self._gate = gate
        self._failure = ""

    def load(self) -> Mapping[str, KeptClass]:
        """The classes by name; empty where nothing is kept for this gate."""
        kept = self._read()
        mine = kept.get(self._deployment, {}).get(self._gate)
        if isinstance(mine, dict):
            return mine
        return {
            name: KeptClass(encoded)
            for name, encoded in kept.get(self._gate, {}).items()
            if isinstance(encoded, str)
        }

    def save(self, classes: Mapping[str, KeptClass]) -> bool:
        """Written beside and renamed, while no other engine does. False where that fails: the log says, once, that
        what is not written ends with this process."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as stack:
                self._lock(stack)
                kept = self._read()
                mine = kept.setdefault(self._deployment, {})
                for gate, before in mine.items():
                    mine[gate] = _without_points(before)
                mine[self._gate] = dict(classes)
                self._replace(msgspec.json.encode(kept))
        except OSError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.error(
                    "risk.state_file %s cannot be written: a restart opens what is closed: %s", self._path, error
                )
            return False
        self._failure = ""
        return True

    def _lock(self, stack: ExitStack) -> None:
        """Until ``stack`` ends. Raises TimeoutError where another process holds it all the time."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                stack.enter_context(held(self._path.with_name(self._path.name + ".lock")))
                return
            except Held:
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds its lock") from None
                time.sleep(0.005)

    def _replace(self, content: bytes) -> None:
        write_atomically(self._path, content, 0o600)

    def _read(self) -> _Kept:
        try:
            return msgspec.json.decode(read_bounded(self._path, MAX_BYTES), type=_Kept)
        except FileNotFoundError:
            return {}
        except (OSError, *UNREADABLE) as error:
            log.warning(
                "risk.state_file %s is unreadable: every class starts as configured: %s", self._path, error
            )
            return {}


def _without_points(classes: _State | dict[str, KeptClass]) -> _State | dict[str, KeptClass]:
    """Of a gate that serves no more: they are many, and of windows that are gone."""
    if not isinstance(classes, dict):
        return classes
    return {name: msgspec.structs.replace(kept_class, points=[]) for name, kept_class in classes.items()}
