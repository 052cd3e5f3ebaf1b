"""Turns: a training works when it is asked to, and rests in between."""

import io
import json
from dataclasses import replace

from redline.bench.training.settings import SETTINGS, DqnSetting
from redline.bench.training.turns import Turns

SETTING = replace(SETTINGS["dqn"], warmup_steps=8, seconds=0.0)


def test_each_line_is_answered_with_what_was_done_since_and_the_end_of_lines_ends_the_training() -> None:
    assert isinstance(SETTING, DqnSetting)
    answers = io.StringIO()
    turns = Turns(SETTING, asked=io.StringIO("0\n0\n"), answers=answers)
    opens = SETTING.opens_at_steps
    turns.add_return(-21.0)
    assert not turns.read(steps=opens - 8, updates=5)
    assert answers.getvalue() == ""
    assert not turns.read(steps=opens, updates=10)  # ready, and the first turn begins
    turns.add_return(3.0)
    assert not turns.read(steps=opens + 8, updates=12)
    turns.add_return(5.0)
    assert turns.read(steps=opens + 24, updates=16)
    ready, first, second = (json.loads(line) for line in answers.getvalue().splitlines())
    assert ready == {}
    assert (first["steps"], first["updates"], first["mean_return"]) == (8, 2, 3.0)
    assert (second["steps"], second["updates"], second["mean_return"]) == (16, 4, 5.0)
    assert second["mean_return_with_warmup"] == (-21.0 + 3.0 + 5.0) / 3
