"""A tiny run of the whole command: what was looked at does not grow with what is there."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from loadgen.keys.command import main
from stream_engine.state.scheduler import CANDIDATES


def test_a_tiny_run_counts_what_each_operation_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    arguments = ["--sessions", "4", "300", "--queries", "2", "40", "--waiting", "300", "--repeats", "2"]
    result = CliRunner().invoke(main, [*arguments, "--kv-memory", "64MB", "--json", str(file)])
    assert result.exit_code == 0, result.output
    commit, delete, waiting = json.loads(file.read_bytes())["flat"]
    assert (commit["objects"], delete["objects"], waiting["objects"]) == ([4, 300], [2, 40], [4, 300])
    assert commit["many"]["looked"] <= commit["few"]["looked"] + 2
    assert delete["many"]["looked"] <= delete["few"]["looked"] + 2
    assert waiting["few"]["looked"] <= 4
    assert 0 < waiting["many"]["looked"] <= CANDIDATES
    assert "looked at" in result.output
