"""Stable-Baselines3's DQN with the same settings, in a process of its own: the base must keep up with it.

It is as its documentation shows it: one env, its own Atari wrappers, default threads. It takes part twice, with the
OpenMP settings that a user has by default and with Redline's, which are better on a busy machine; the base must keep up
with whichever is faster. It works by turns like all others and rests in between.
Differences that can't be set away: SB3 clips the gradient's norm, and presses FIRE when a game begins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from typing import Any

from redline.bench.ladder.contenders import ContenderError, Turn
from redline.bench.ladder.task import BATCH_SIZE
from redline.bench.peer_install import why_missing

NAME = "stable-baselines3"
OPENMP = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # that Redline sets for itself
ENVIRONS: Mapping[str, frozenset[str]] = {  # its names among the contenders, and what is taken out of its environment
    NAME: frozenset(OPENMP),
    f"{NAME}, Redline's OpenMP settings": frozenset(),
}
TAIL_CHARACTERS = 500


def missing() -> str | None:
    """Return why it can't be measured here, or None if it can."""
    return why_missing("stable_baselines3", NAME)


class StableBaselines3:
    """The worker, and the pipe through which it is given turns."""

    def __init__(self, *, seed: int, without: Collection[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "redline.bench.ladder.sb3_worker", str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={name: value for name, value in os.environ.items() if name not in without},
            start_new_session=True,  # Ctrl-C is for the bench, which ends it
            text=True,
        )

    def warm_up(self) -> None:
        """Wait until it learns."""
        self._answer()

    def take_turn(self, seconds: float) -> Turn:
        """Let it train for about so long."""
        pipe = self._process.stdin
        if pipe is None or self._process.poll() is not None:
            raise self._failure()
        try:
            pipe.write(f"{seconds}\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._failure() from None
        row = self._answer()
        return Turn(**row, samples=row["updates"] * BATCH_SIZE)

    def close(self) -> None:
        """End it: nothing of it is kept."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise self._failure()
        row: dict[str, Any] = json.loads(line)
        return row

    def _failure(self) -> ContenderError:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")[-TAIL_CHARACTERS:].strip()
        return ContenderError(f"{NAME} ended with {self._process.poll()}: {said}")
