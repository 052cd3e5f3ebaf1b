"""Scripts that know nothing of Redline, run as their users run them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, main

RunScript = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script() -> Callable[[str], Path]:
    return lambda name: Path(__file__).with_name(name)


@pytest.fixture
def run_script(script: Callable[[str], Path]) -> RunScript:
    """Run one of the scripts to its end, by itself."""

    def run(name: str, *args: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(script(name)), *(str(arg) for arg in args)]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=one_thread)

    return run


@pytest.fixture
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Make the report of a recording and return the page."""

    def make(folder: Path) -> str:
        page = tmp_path_factory.mktemp("report") / "report.html"
        assert main(["report", str(folder), "--out", str(page)]) == DONE
        return page.read_text(encoding="utf-8")

    return make


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], dict[str, Any]]:
    """Return what `redline watch` tells of a recording."""

    def told(folder: Path) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["watch", str(folder), "--json"]) == DONE
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return told
