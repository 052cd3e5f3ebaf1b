"""Packages that Redline does not bring: MinAtar as a suite of its own, trained to a score and drawn, and Trackio."""

import json
import os
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parent / "minatar_suite"
GOAL_RETURN = 5.0  # of Breakout, of which random play makes about 0.5

pytestmark = pytest.mark.slow

Redline = Callable[..., Any]


@pytest.fixture
def redline(tmp_path: Path) -> Redline:
    """Redline in an environment of its own, beside packages that the first call names; returns what --json prints."""
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text("\n".join(f"import site; site.addsitedir({path!r})" for path in ours))

    def run(*words: object, **environ: str) -> str:
        done = subprocess.run(
            [str(tmp_path / "venv" / "bin" / "python"), "-m", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **environ},
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        return done.stdout

    def call(command: str, *words: object, **environ: str) -> Any:
        if command == "pip":
            return run("pip", "install", "--quiet", *words)
        return json.loads(run("redline.cli.main", command, *words, "--json", **environ))

    return call


def test_minatar_is_installed_trained_to_a_score_resumed_and_drawn(redline: Redline) -> None:
    redline("pip", "--no-deps", "minatar==1.0.15", SUITE)
    assert "minatar/breakout" in redline("envs")["suites"]["minatar"]["ids"]
    flags = ("--env", "minatar/breakout", "--model", "ppo", "--seed", 1, "--max-steps", 1_000_000)
    trained = redline("train", *flags, "--target-return", GOAL_RETURN)
    assert trained["reason"] == f"target-return {GOAL_RETURN:g} reached"
    verified = redline("play", trained["run"], "--verify")
    assert (verified["mismatches"], verified["damages"]) == ([], [])
    redline("play", trained["run"], "--sheet", "sheet.png")
    more = trained["steps"] + 2_048
    resumed = redline("resume", trained["run"], "--target-return", "None", "--max-steps", more)
    assert resumed["steps"] >= more


def test_trackio_keeps_a_run(redline: Redline, tmp_path: Path) -> None:
    redline("pip", "trackio")
    flags = ("--env", "CartPole-v1", "--model", "ppo", "--max-steps", 2_048, "--track", "trackio")
    trained = redline("train", *flags, TRACKIO_DIR=str(tmp_path / "trackio"))
    (database,) = (tmp_path / "trackio").glob("redline*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    assert max(step for _, step, _ in rows) == 2_048  # a busy machine writes rows on the way, too
    assert all(Path(trained["run"]).name in name for name, _, _ in rows)
    assert "mean_return_100" in str(rows[0][2])
