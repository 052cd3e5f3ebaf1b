"""Lets the tests of this folder import the modules beside them and the runs of tests/episodes and tests/report."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, main

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "episodes"), str(HERE.parent / "report")]

Output = pytest.CaptureFixture[str]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def pong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lanes of Pong, cut after 20 steps: five episodes each, and two greedy ones."""
    from played_runs import train

    args = ("--env", "pong", "--env.max-episode-frames", "80", "--network", "small", "--num-envs", "2")
    steps = ("--warmup-steps", "190", "--max-steps", "200", "--replay.capacity", "1000")
    more = ("--evaluate-every-steps", "100", "--evaluator.episodes", "1", "--record-values")
    return train(tmp_path_factory.mktemp("pong"), *args, *steps, *more)


@pytest.fixture(scope="session")
def catch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from played_runs import train

    args = ("--env", "redline/Catch-v0", "--network", "small", "--num-envs", "4", "--max-steps", "100")
    return train(tmp_path_factory.mktemp("catch"), *args, "--warmup-steps", "96", "--replay.capacity", "1000")


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """Return a run of one's own to do something to."""

    def copy(run: Path) -> Path:
        target = tmp_path / "copy" / run.name
        shutil.copytree(run, target)
        return target

    return copy


@pytest.fixture
def answer(capsys: Output) -> Callable[..., dict[str, Any]]:
    """Run `redline play … --json` and return the one object that is printed."""

    def answer(run: Path, *args: str, code: int = DONE) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["play", str(run), "--json", *args]) == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert found["schema"] == 1
        return found

    return answer
