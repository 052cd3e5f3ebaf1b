"""Starts `redline` as a user does: a process of its own, through its command line."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TAIL_CHARACTERS = 2_000


def redline_command(*arguments: str) -> list[str]:
    """Return the command line of Redline in this Python."""
    return [sys.executable, "-m", "redline.cli.main", *arguments]


def run_redline(arguments: Sequence[str], log: Path) -> dict[str, Any]:
    """Run a command with --json to its end and return its object; what it says on the way goes to `log`."""
    with log.open("ab") as said:
        done = subprocess.run(redline_command(*arguments, "--json"), stdout=subprocess.PIPE, stderr=said, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"redline {arguments[0]} ended with {done.returncode}: {tail(log)}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def tail(log: Path) -> str:
    """Return the end of what a process said."""
    return log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip()
