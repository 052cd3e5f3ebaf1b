"""A study's folder: what was asked for is frozen, one process has it, and damage is told in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from redline.errors import UserError
from redline.runs.directory import RunLock
from redline.runs.locating import find_recorded
from redline.tune.study import (
    FINAL_SEEDS,
    LOCK,
    SEARCH_SEEDS,
    STUDY_JSON,
    StudyFolder,
    StudySettings,
    read_settings,
)

ASKED = StudySettings(
    env="CartPole-v1",
    algo="dqn",
    goal="steps-to-return:400",
    window=100,
    minutes_per_trial=1.0,
    search_minutes=10.0,
    trials=None,
    seeds_per_trial=2,
    final_seeds=3,
    side_by_side=2,
    threads=1,
    pruning="halving",
    seed=1,
    space_name="space.toml",
    space={"optimizer.lr": {"low": 1e-4, "high": 1e-3}, "fixed": {}},
)


def test_a_study_goes_on_with_the_same_settings_and_counts_its_time(tmp_path: Path) -> None:
    path = tmp_path / "study"
    with StudyFolder(path, ASKED, ["redline", "tune"]) as folder:
        folder.spend(2.5)
        folder.spend(1.0)
        assert find_recorded(path) == []  # a study is no run
    with StudyFolder(path, ASKED, ["redline", "tune"]) as folder:
        assert folder.spent_s == 3.5
    assert read_settings(path) == ASKED
    assert path.stat().st_mode & 0o077 == 0


def test_a_study_with_other_settings_is_refused_in_one_line(tmp_path: Path) -> None:
    StudyFolder(tmp_path / "study", ASKED, []).close()
    for other, said in (
        (replace(ASKED, goal="return-at-minutes"), "goal steps-to-return:400, not return-at-minutes"),
        (replace(ASKED, space={**ASKED.space, "fixed": {"epochs": 1}}), "another search space"),
    ):
        with pytest.raises(UserError, match=said):
            StudyFolder(tmp_path / "study", other, [])


@pytest.mark.parametrize(
    "name", ["trials", "check", "trials/0001", "trials/0001/cartpole-v1", "check.jsonl", "report.html"]
)
def test_a_link_in_a_study_is_refused_before_a_training_could_follow_it(name: str, tmp_path: Path) -> None:
    path, outside = tmp_path / "study", tmp_path / "outside"
    StudyFolder(path, ASKED, []).close()
    outside.mkdir()
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).symlink_to(outside)
    with pytest.raises(UserError, match=f"{name} is a link"):
        StudyFolder(path, ASKED, [])


def test_a_study_that_another_process_has_is_refused(tmp_path: Path) -> None:
    with StudyFolder(tmp_path / "study", ASKED, []), pytest.raises(UserError, match="in use by process"):
        StudyFolder(tmp_path / "study", ASKED, [])


def test_of_two_first_starts_only_the_one_with_the_lock_writes(tmp_path: Path) -> None:
    path = tmp_path / "study"
    path.mkdir()
    first = RunLock(path, LOCK)
    with pytest.raises(UserError, match="in use by process"):
        StudyFolder(path, ASKED, [])
    assert [place.name for place in path.iterdir()] == [LOCK]
    first.release()
    StudyFolder(path, ASKED, []).close()  # also where the first was killed before it wrote
    assert read_settings(path) == ASKED


def test_a_kill_while_the_first_settings_are_written_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "study"
    path.mkdir()
    (path / f".redline-{'0' * 16}.tmp").write_text("{")
    StudyFolder(path, ASKED, []).close()
    assert {place.name for place in path.iterdir()} == {LOCK, STUDY_JSON}


def test_on_a_full_disk_only_room_helps(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(1 << 20))
    with pytest.raises(UserError, match=f"no space left on device; {small_disk} has 0.0 MB free: make room$"):
        StudyFolder(small_disk / "study", ASKED, [])


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(UserError, match="not empty and no study"):
        StudyFolder(tmp_path, ASKED, [])
    with pytest.raises(UserError, match="is not a study"):
        read_settings(tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema":1,"settings":{}}', "\x00" * 100, "[" * 100_000])
def test_a_damaged_study_gets_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(UserError, match="is damaged"):
        read_settings(tmp_path)


def test_settings_of_wrong_types_in_a_study_get_one_line(tmp_path: Path) -> None:
    StudyFolder(tmp_path / "s", ASKED, []).close()
    path = tmp_path / "s" / "study.json"
    whole = json.loads(path.read_text())
    for key, value in (
        ("window", "x"),
        ("goal", 3),
        ("minutes_per_trial", None),
        ("trials", []),
        ("space", 3),
        ("seed", True),
    ):
        path.write_text(json.dumps({**whole, "settings": {**whole["settings"], key: value}}))
        with pytest.raises(UserError, match="is damaged"):
            read_settings(tmp_path / "s")


def test_no_seed_of_the_search_is_one_of_the_check() -> None:
    assert not set(SEARCH_SEEDS) & set(FINAL_SEEDS)
    seeds = [ASKED.search_seed(trial, place) for trial in range(1_000) for place in range(2)]
    assert len(set(seeds)) == 2_000
    assert set(seeds) <= set(SEARCH_SEEDS)
    assert ASKED.search_seed(10**9, 1) in SEARCH_SEEDS


def test_all_seeds_of_a_trial_have_to_fit_into_the_search() -> None:
    with pytest.raises(UserError, match=r"--minutes-per-trial 6 × --seeds-per-trial 2 is longer than the search of 10"):
        replace(ASKED, minutes_per_trial=6.0)
    replace(ASKED, minutes_per_trial=5.0)
    replace(ASKED, minutes_per_trial=0.1, seeds_per_trial=3, search_minutes=0.3)  # 3 × 0.1 > 0.3 in floats


def test_a_slow_machine_does_not_decide_a_check_that_counts_steps() -> None:
    assert ASKED.check_minutes == 3 * ASKED.minutes_per_trial
    assert replace(ASKED, goal="minutes-to-return:400").check_minutes == ASKED.minutes_per_trial
