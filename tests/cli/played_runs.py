"""Runs that are really trained for a moment, for the commands that read them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from redline.cli.main import DONE, main

Answer = Callable[..., dict[str, Any]]  # a run, flags, `code`: the object that `redline play RUN … --json` prints

RECORDINGS = Path("recordings", "episodes.rec")


def train(log_dir: Path, *args: str) -> Path:
    """Train for a moment and return the run."""
    assert main(["train", *args, "--log-dir", str(log_dir), "--plain"]) == DONE
    (run,) = log_dir.glob("*/*/*")
    return run


def content(run: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file: equal if nothing was written."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(run.rglob("*"))}
