"""Interrupted runs: what is read out of the lives of their processes, and how it is judged."""

from pathlib import Path
from typing import Any

import pytest

import interruptions
from interruptions import Life
from recording import make_record
from redline.jsonl import RecordWriter

FLAGS = ("--gap-seconds", "36", "--work-minutes", "60")  # 100 an hour
OPTIONS = interruptions.parse(FLAGS)


def test_with_notice_all_training_is_kept_and_saving_is_a_part_of_the_restart() -> None:
    life = Life.at(started_s=100.0, trains_s=103.0, saved_s=110.5, asked_s=110.0, ended_s=111.0)
    assert (life.kept_s, life.lost_s, life.restart_s) == (7.0, 0.0, 3.0 + 1.0)


def test_without_notice_the_training_since_the_newest_checkpoint_is_lost() -> None:
    moments = {"started_s": 100.0, "trains_s": 103.0, "asked_s": 110.0, "ended_s": 110.0}
    assert Life.at(saved_s=108.0, **moments) == Life(starting_s=3.0, kept_s=5.0, lost_s=2.0, saving_s=0.0)
    assert Life.at(saved_s=90.0, **moments).kept_s == 0.0  # of the process before


def row(way: str, *, counts: bool, kept_s: float = 30.0, starting_s: float = 3.6) -> dict[str, Any]:
    return {"way": way, "counts": counts, "starting_s": starting_s, "kept_s": kept_s, "lost_s": 0.0, "saving_s": 0.0}


def test_a_restart_is_timed_before_the_others_and_after_every_six_of_them() -> None:
    def is_counted(counted: int, timed: int) -> bool | None:
        rows = [*[row("kill", counts=True)] * counted, *[row("kill", counts=False)] * timed]
        life = interruptions.next_life(rows, OPTIONS, way="kill")
        return None if life is None else life[1]

    assert [is_counted(0, 0), is_counted(0, 1), is_counted(5, 1), is_counted(6, 1)] == [False, True, True, False]
    assert is_counted(200, 100) is None  # 6,000 s of 3,600 are kept


def test_moments_depend_on_the_seed_the_way_and_their_number_alone() -> None:
    def gap(*, seed: int = 1, way: str = "kill", number: int = 3, starting_s: float = 3.6) -> object:
        options = interruptions.parse([*FLAGS, "--seed", str(seed)])
        rows = [row(way, counts=False), *[row(way, counts=True, starting_s=starting_s)] * number]
        return interruptions.next_life(rows, options, way=way)

    assert gap(starting_s=9.9) == gap()
    assert len({gap(), gap(seed=2), gap(way="sigterm"), gap(number=4)}) == 4


def test_only_lives_of_this_version_and_these_flags_are_judged(tmp_path: Path) -> None:
    options = interruptions.parse([*FLAGS, "--rows", str(tmp_path / "rows.jsonl")])
    assert interruptions.read_done(options) == []
    known = interruptions.settings_of(options)
    with RecordWriter(options.rows) as writer:
        for starting_s, changed in enumerate(({}, {"commit": "another"}, {"seed": 2})):
            writer.write({**row("kill", counts=True, starting_s=starting_s), **known, **changed})
    assert [life["starting_s"] for life in interruptions.read_done(options)] == [0]


def test_a_hundred_interruptions_are_judged_by_the_interval_that_the_command_prints(tmp_path: Path) -> None:
    rows = [row("sigterm", counts=False), *[row("sigterm", counts=True)] * 100]
    seen = interruptions.judge(rows, OPTIONS, way="sigterm", log=tmp_path / "log")
    assert (seen["interruptions"], seen["extra_s"], seen["restart_s"]) == pytest.approx((100, 360.0, 3.6))
    assert seen["hours_s"] == pytest.approx(100 * 3.6, rel=0.01)
    assert seen["low_s"] < seen["hours_s"] < seen["high_s"]

    def verdict(**changed: float) -> tuple[str, bool | None]:
        found = interruptions.measurement(OPTIONS, rows, {"sigterm": {**seen, **changed}})
        make_record(found, argv=["x.py"], unix_s=0.0)
        return found.name, found.passed

    assert verdict() == ("interruptions", True)
    assert verdict(extra_s=720.0) == ("interruptions", False)
    assert verdict(interruptions=5) == ("interruptions-tried", None)
