"""The command line: usage, and what it says when something is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadgen.cli import cli
from stream_engine.util.ports import free_port


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["run", *arguments])


@pytest.mark.parametrize("rhos", ["", "1,x", "0", "-1,2", "nan", "inf"])
def test_each_rho_is_a_positive_number(rhos: str) -> None:
    result = invoke("--rho", rhos)
    assert result.exit_code == 2
    assert "--rho" in result.output


def test_an_absent_service_is_named_with_what_starts_one() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = invoke("--url", url)
    assert result.exit_code == 1
    assert f"no API at {url}" in result.output
    assert "stream-engine serve" in result.output


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    result = invoke("--url", f"http://127.0.0.1:{free_port()}", "--json", str(tmp_path / "absent" / "run.json"))
    assert result.exit_code == 2
    assert "absent" in result.output


def test_it_runs_as_a_module_without_torch() -> None:
    script = (
        "import sys, runpy; sys.argv = ['loadgen', 'run', '--url', 'http://127.0.0.1:9']\n"
        "try:\n    runpy.run_module('loadgen', run_name='__main__')\n"
        "except SystemExit as end:\n    code = end.code\n"
        "sys.exit(code if 'torch' not in sys.modules else 77)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "no API at" in done.stderr
