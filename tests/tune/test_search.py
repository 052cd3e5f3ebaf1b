"""The search with runs that only pretend to train: pruning, failures, what a kill loses, and the check."""

import errno
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from redline.cli.flags import parse_train
from redline.errors import UserError
from redline.jsonl import read_records
from redline.tune.goals import Curve
from redline.tune.search import Found, SearchView, tune
from redline.tune.space import Choices, Range, Space
from redline.tune.study import StudyFolder, StudySettings
from redline.tune.training import Launch, Training
from redline.tune.trials import Halving, distributions, draw, open_trials, read_trials, set_back, to_drawn, to_settings

PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))
SPACE = Space(name="space.toml", dimensions={"optimizer.lr": Range(1e-4, 1e-2)}, fixed={})
ASKED = StudySettings(
    env="CartPole-v1",
    algo="dqn",
    goal="return-at-minutes",
    window=1,
    minutes_per_trial=0.1,
    search_minutes=None,
    trials=8,
    seeds_per_trial=1,
    final_seeds=2,
    side_by_side=4,
    threads=1,
    pruning="halving",
    seed=1,
    space_name="space.toml",
    space=SPACE.to_plain(),
)


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of these tests last a fraction of a second."""
    monkeypatch.setattr("redline.tune.search.POLL_S", 0.05)


class Silent:
    """Keeps what a search says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.views: list[SearchView] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, view: SearchView) -> None:
        self.views.append(view)


def search(path: Path, asked: StudySettings = ASKED, space: Space = SPACE, stop_after: int | None = None) -> Found:
    """Tune; stop from outside after so many trials were told of, where asked."""
    display = Silent()

    def stop() -> str | None:
        told = sum(" done: " in note or " pruned: " in note for note in display.notes)
        return "SIGTERM" if stop_after is not None and told >= stop_after else None

    with StudyFolder(path, asked, []) as folder:
        launch = Launch(program=PROGRAM, settings={"algo": "dqn", "env": "CartPole-v1"})
        defaults: Mapping[str, Any] = {"optimizer.lr": 0.001}
        return tune(folder, space, launch, defaults=defaults, display=display, stop=stop)


def test_the_steepest_curve_wins_and_is_checked_on_seeds_of_its_own(tmp_path: Path) -> None:
    found = search(tmp_path / "study")
    states = [trial.state for trial in found.trials]
    assert len(found.trials) == 8
    assert found.trials[0].settings == {"optimizer.lr": 0.001}  # the defaults come first
    assert found.best is not None
    assert found.best.settings["optimizer.lr"] == max(trial.settings["optimizer.lr"] for trial in found.trials)
    assert "pruned" in states
    assert found.verdict is not None
    assert [result.seed for result in found.verdict.winner] == [2_000_000, 2_000_001]
    assert [result.seed for result in found.verdict.default] == [2_000_000, 2_000_001]
    assert found.verdict.is_better(ASKED.aim)
    assert not found.verdict.is_default
    used = [result.seed for trial in found.trials for result in trial.results]
    assert len(set(used)) == len(used)
    page = (tmp_path / "study" / "report.html").read_text()
    assert "the winner is better" in page
    assert "2000001" in page
    for line in (tmp_path / "study" / "journal.log").read_text().splitlines():
        assert isinstance(json.loads(line), dict)  # nothing is pickled
    assert len(read_records(tmp_path / "study" / "check.jsonl")) == 4


def test_a_search_goes_on_where_it_stopped_and_a_whole_one_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pickle.loads", "pickle.load", "pickle.Unpickler"):
        monkeypatch.setattr(name, None)  # nothing on the way may unpickle
    asked = replace(ASKED, trials=6, side_by_side=2, final_seeds=1)
    first = search(tmp_path / "study", asked, stop_after=2)
    assert first.stopped == "SIGTERM"
    assert first.verdict is None
    ended = [trial for trial in first.trials if trial.state in ("done", "pruned")]
    lost = [trial for trial in first.trials if trial.state == "interrupted"]
    assert len(ended) >= 2
    assert len(lost) <= 2
    # as a kill leaves it: half a line in the journal, the lock of its writer beside it
    journal = tmp_path / "study" / "journal.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":')
    journal.with_name("journal.log.lock").symlink_to(journal)
    second = search(tmp_path / "study", asked)
    assert second.stopped is None
    assert [trial for trial in second.trials if trial.number in {before.number for before in ended}] == ended
    again = [trial.settings for trial in second.trials if trial.state != "interrupted"]
    assert all(trial.settings in again for trial in lost)
    assert sum(trial.state in ("done", "pruned") for trial in second.trials) == 6
    assert search(tmp_path / "study", asked) == second


def test_trials_that_a_kill_left_under_way_are_interrupted_and_queued_again(tmp_path: Path) -> None:
    study = open_trials(tmp_path, seed=1)
    study.enqueue_trial(to_drawn(SPACE, {"optimizer.lr": 0.002, "batch-size": 3}))
    study.ask(distributions(SPACE))
    opened = open_trials(tmp_path, seed=1)
    assert set_back(opened, SPACE) == [0]
    (record,) = read_trials(opened, SPACE)
    assert (record.state, record.settings) == ("interrupted", {"optimizer.lr": 0.002})
    assert opened.ask(distributions(SPACE)).params == {"optimizer.lr": 0.002}


@pytest.mark.parametrize("goal", ["return-at-minutes", "steps-to-return:1_000", "return-at-steps:2_000"])
def test_at_each_point_trials_are_compared_by_their_means_at_that_point(tmp_path: Path, goal: str) -> None:
    search(tmp_path / "study", replace(ASKED, goal=goal, trials=6, final_seeds=1))
    for trial in open_trials(tmp_path / "study", seed=1).get_trials():
        slope = trial.params["optimizer.lr"]
        odd = trial.number % 2  # as its seed is, which the pretended return adds
        at_points = {step: value for step, value in trial.intermediate_values.items() if step in (1, 2)}
        expected = {1: slope * 1000 * 5 + odd, 2: slope * 1000 * 10 + odd}  # after 5 and 10 of 20 episodes
        assert at_points == {step: expected[step] for step in at_points}
        assert at_points


def test_the_first_four_at_a_point_are_spared_without_counting_interrupted_ones(tmp_path: Path) -> None:
    study = open_trials(tmp_path, seed=1)

    def is_behind(trial: Trial, value: float) -> bool:
        return Halving(study, ASKED, trial).is_behind(1, value)

    lost = draw(study, SPACE, tmp_path)
    is_behind(lost, 9.0)
    study.tell(lost.number, state=TrialState.FAIL)
    behind = [is_behind(draw(study, SPACE, tmp_path), value) for value in (8.0, 7.0, 6.0, 5.0, 4.0)]
    assert behind == [False, False, False, False, True]


def test_a_trial_begins_only_if_all_its_seeds_fit_into_what_is_left(tmp_path: Path) -> None:
    asked = replace(ASKED, trials=None, search_minutes=0.2, seeds_per_trial=2, side_by_side=1)
    with StudyFolder(tmp_path / "study", asked, []) as folder:
        folder.spend(5.0)
    assert search(tmp_path / "study", asked).trials == []


def test_a_trial_that_takes_the_whole_time_begins_and_finishes_its_seeds(tmp_path: Path) -> None:
    # the pretended runs take longer than these 0.3 s each
    asked = replace(ASKED, trials=None, search_minutes=0.01, minutes_per_trial=0.005, seeds_per_trial=2, side_by_side=1)
    found = search(tmp_path / "study", asked)
    assert [(trial.state, len(trial.results)) for trial in found.trials] == [("done", 2)]


def test_who_goes_on_does_not_draw_the_same_again(tmp_path: Path) -> None:
    drawn = [
        draw(study, SPACE, tmp_path).params["optimizer.lr"]
        for study in (open_trials(tmp_path, seed=1) for _ in range(3))
        for _ in range(3)
    ]
    assert len(set(drawn)) == 9


def test_a_full_disk_does_not_damage_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = JournalFileBackend.append_logs
    is_full = False

    def append_until_full(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        nonlocal is_full
        if not is_full and logs[0]["op_code"] == 6 and logs[0]["state"] == TrialState.COMPLETE:
            is_full = True  # for one line, as where somebody makes room at once
            with (tmp_path / "study" / "journal.log").open("ab") as file:
                file.write(b'{"op_code":6,')
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, logs)

    monkeypatch.setattr(JournalFileBackend, "append_logs", append_until_full)
    asked = replace(ASKED, trials=4, final_seeds=1)
    with pytest.raises(UserError, match="no space left on device"):
        search(tmp_path / "study", asked)
    found = search(tmp_path / "study", asked)
    assert sum(trial.state in ("done", "pruned") for trial in found.trials) == 4


def test_failed_runs_of_the_check_are_trained_again_and_stay_listed(tmp_path: Path) -> None:
    asked = replace(ASKED, trials=2, final_seeds=1)
    search(tmp_path / "study", asked)
    path = tmp_path / "study" / "check.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["result"]["failure"] = "killed by signal 9" if row["who"] == "default" else ""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = search(tmp_path / "study", asked)
    assert found.verdict is not None
    assert [result.failure for result in found.verdict.default] == [""]
    assert found.verdict.repeated == ("default with seed 2000000: killed by signal 9",)
    assert len(read_records(path)) == len(rows) + 1
    assert "killed by signal 9" in (tmp_path / "study" / "report.html").read_text()


def test_a_target_ends_runs_early_and_the_sooner_one_wins(tmp_path: Path) -> None:
    asked = replace(ASKED, goal="steps-to-return:20", trials=4, seeds_per_trial=2, final_seeds=1, pruning="off")
    space = replace(SPACE, dimensions={"optimizer.lr": Range(2e-3, 1e-2)})
    found = search(tmp_path / "study", replace(asked, space=space.to_plain()), space)
    done = [trial for trial in found.trials if trial.state == "done"]
    assert len(done) == 4
    assert found.best is not None
    steps = {trial.number: sum(result.reached_steps or 0 for result in trial.results) for trial in done}
    assert steps[found.best.number] == min(steps.values())
    assert all(len(trial.results) == 2 for trial in done)
    first_to_end = open_trials(tmp_path / "study", seed=1).user_attrs["whole_run_steps"]
    assert first_to_end in {trial.results[0].steps for trial in done}  # what later ones are compared by


def test_what_fails_is_told_and_many_failures_end_the_search(tmp_path: Path) -> None:
    space = replace(SPACE, dimensions={"optimizer.lr": Choices(("0.95", "0.96"))})
    with pytest.raises(UserError, match="5 trials in a row failed, the last: the loss is not finite at step 7"):
        search(tmp_path / "study", replace(ASKED, space=space.to_plain()), space)
    assert "seed 1000000: the loss is not finite" in (tmp_path / "study" / "report.html").read_text()


def test_a_damaged_journal_gets_one_line(tmp_path: Path) -> None:
    open_trials(tmp_path, seed=1)
    for line in ("nonsense", "[1]", "[" * 100_000, '{"op_code": 99}', '{"op_code": 4, "worker_id": "a"}'):
        path = tmp_path / "journal.log"
        whole = path.read_bytes()
        path.write_bytes(line.encode() + b"\n" + whole)
        with pytest.raises(UserError, match="is damaged"):
            open_trials(tmp_path, seed=1)
        path.write_bytes(whole)


def test_what_a_damaged_journal_says_of_results_steps_and_choices_is_left_out(tmp_path: Path) -> None:
    study = open_trials(tmp_path, seed=1)
    trial = draw(study, SPACE, tmp_path)
    trial.set_user_attr("results", 3)
    assert [record.results for record in read_trials(study, SPACE)] == [()]
    choices = replace(SPACE, dimensions={"layers": Choices(('"plain"',))})
    assert to_settings(choices, {"layers": "nonsense"}) == {}
    assert to_settings(choices, {"layers": 3}) == {}
    curve = Curve(1, None)
    curve.add_episode({"role": "actor", "return": 7.0, "steps": 10, "time_s": 1.0})
    for steps in (0, -1, "many", [1]):
        study.set_user_attr("whole_run_steps", steps)
        assert Halving(study, replace(ASKED, goal="steps-to-return:20"), trial).mean_at(curve, 0.25) == 7.0


def test_trials_of_another_space_in_a_journal_get_one_line(tmp_path: Path) -> None:
    study = open_trials(tmp_path, seed=1)
    study.ask({"optimizer.lr": CategoricalDistribution(("nonsense",))})
    with pytest.raises(UserError, match=r"journal\.log is damaged"):
        draw(study, SPACE, tmp_path)


def test_a_run_is_started_as_train_understands_it(tmp_path: Path) -> None:
    with StudyFolder(tmp_path / "study", replace(ASKED, goal="return-at-steps:500"), []) as folder:
        launch = Launch(program=PROGRAM, settings={"algo": "ppo", "env": "CartPole-v1"})
        run = Training(
            folder, launch, home=folder.trial_folder(3), varied={"optimizer.lr": 0.002}, seed=77, minutes=0.1
        )
        run.curve.add_reading({"steps": 250, "time_s": 0.6})
        assert run.describe() == "50%, 250 steps, no episode yet"
        run.kill()
        run.wait()
        assert run.result().failure == "killed by signal 9"
        flags = parse_train(run._arguments()[1:])
    assert flags.algo == "ppo"
    assert flags.job.algorithm.optimizer.lr == 0.002
    assert (flags.job.seed, flags.job.limits.max_steps, flags.job.limits.max_minutes) == (77, 500, 0.1)
    assert (flags.job.learner.threads, flags.job.actor.threads) == (1, 1)
    assert flags.job.log_dir == tmp_path / "study" / "trials" / "0003"
