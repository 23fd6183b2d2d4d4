"""What risk control has decided, in one small file, so that a restart does not open what was closed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

log = logging.getLogger(__name__)

_Kept = dict[str, dict[str, Literal["OPEN", "RAISED", "CLOSED"]]]
"""States of classes by the gate that they are about: they say nothing of another one."""


class RiskMemory:
    """States of question classes, kept for one gate; engines with other gates may share the file."""

    def __init__(self, path: Path, gate: str) -> None:
        self._path = path
        self._gate = gate

    def load(self) -> Mapping[str, str]:
        """The states by class; empty where nothing is kept for this gate."""
        return self._read().get(self._gate, {})

    def save(self, states: Mapping[str, str]) -> None:
        """Written beside and renamed. Where that fails the log says that the decision ends with this process."""
        draft = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode({**self._read(), self._gate: states}))
            draft.replace(self._path)
        except OSError as error:
            log.error("risk.state_file %s cannot be written: a restart opens what is closed: %s", draft, error)

    def _read(self) -> _Kept:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.warning(
                "risk.state_file %s is unreadable: every class starts as configured: %s", self._path, error
            )
            return {}
