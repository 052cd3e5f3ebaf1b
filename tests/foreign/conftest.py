"""Scripts that know nothing of Redline, run as their users run them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
def report(tmp_path_factory: pytest.TempPathFactory, run_program: Callable[..., Any]) -> Callable[[Path], str]:
    """Make the report of a recording and return the page."""

    def make(folder: Path) -> str:
        page = tmp_path_factory.mktemp("report") / "report.html"
        ended = run_program("report", folder, "--out", page)
        assert ended.returncode == 0, ended.stderr
        return page.read_text(encoding="utf-8")

    return make
