"""Trains when it is told to, for as long as it is told, and answers with what it did; in between it rests."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Self, TextIO

import torch

from redline.bench.training.settings import Setting
from redline.bench.training.window import SteadyWindow


class Turns:
    """Windows of a training, one for each line that asks for some seconds; the first once it learns steadily.

    It rests between two vector steps, at the end of a rollout where there are such, so that every window holds as much
    learning as playing. `{}` says that it is ready for the first.
    """

    def __init__(self, setting: Setting, *, asked: TextIO, answers: TextIO) -> None:
        self._opens_at_steps, self._every_steps = setting.opens_at_steps, setting.window_every_steps
        self._asked, self._answers = asked, answers
        self._window: SteadyWindow | None = None
        self._returns_before: list[float] = []

    @classmethod
    def of_this_process(cls, setting: Setting) -> Self:
        """Return turns that are asked for on stdin and answered on stdout, where nobody else writes from now on."""
        answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return cls(setting, asked=sys.stdin, answers=answers)

    def read(self, *, steps: int, updates: int) -> bool:
        """Look at the clock between two vector steps; return whether no more turns are wanted."""
        window = self._window
        if window is None:
            if steps % self._every_steps or steps < self._opens_at_steps or not updates:
                return False
            self._answer({})
        elif window.read(steps=steps, updates=updates):
            self._returns_before += window.returns_in_window
            self._answer(window.row() | {"threads": torch.get_num_threads()})
        else:
            return False
        line = self._asked.readline()
        if not line:
            return True
        self._window = SteadyWindow(float(line), opens_at_steps=0, every_steps=self._every_steps)
        self._window.returns_before = list(self._returns_before)
        self._window.read(steps=steps, updates=updates)  # opens now
        return False

    def add_return(self, value: float) -> None:
        """Take in the unclipped return of an episode that ended."""
        (self._returns_before if self._window is None else self._window.returns_in_window).append(value)

    def _answer(self, row: dict[str, Any]) -> None:
        self._answers.write(json.dumps(row) + "\n")
        self._answers.flush()
