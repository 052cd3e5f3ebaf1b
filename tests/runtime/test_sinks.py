"""Sinks: each is told what the run's files are told, and none that fails, hangs or falls behind holds up training."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import redline
from redline.cli.main import BAD_INPUT, main
from redline.runtime import sinks as module
from redline.runtime.sinks import EVENTS, RunStart, Sinks, TensorBoard

CARTPOLE: dict[str, Any] = {"max_steps": 400, "monitor": {"hz": 0.0}, "seed": 3}


class Kept:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"metrics": [], "episodes": [], "events": []}
        self.is_closed = False

    def write(self, kind: str, row: dict[str, Any]) -> None:
        self.rows[kind].append(row)

    def close(self) -> None:
        self.is_closed = True


class Raises(Kept):
    def write(self, kind: str, row: dict[str, Any]) -> None:
        raise ValueError("no more")


class Sleeps(Kept):
    def write(self, kind: str, row: dict[str, Any]) -> None:
        time.sleep(600.0)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSING_S", 1.0)


def warnings_of(run: redline.Run) -> list[str]:
    return [row["message"] for row in run.events if row["event"] == "warning"]


def test_a_sink_is_told_what_the_files_are_told_also_after_a_resume(tmp_path: Path) -> None:
    first, second = Kept(), Kept()
    run = redline.train("CartPole-v1", "ppo", log_dir=tmp_path, sinks=[first, second], **CARTPOLE)
    assert first.rows == second.rows
    written = {"metrics": run.metrics, "episodes": run.episodes, "events": run.events}
    for kind, rows in written.items():
        assert len(first.rows[kind]) == len(rows) > 0
        assert [row["steps"] for row in first.rows[kind]] == [row["steps"] for row in rows]
    assert first.is_closed
    again = Kept()
    run.resume(sinks=[again], max_steps=800)
    assert again.rows["events"][0]["event"] == "resume"
    assert again.rows["metrics"][-1]["steps"] == 800


@pytest.mark.parametrize(
    ("hostile", "said"),
    [(Raises, "no more"), (Sleeps, "did not finish within 1 s")],
)
def test_training_goes_on_beside_a_hostile_sink_and_that_is_said_once(
    hostile: Callable[[], Kept], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="redline")
    good, begun_s = Kept(), time.monotonic()
    run = redline.train("CartPole-v1", "ppo", log_dir=tmp_path, sinks=[hostile(), good], **CARTPOLE)
    assert time.monotonic() - begun_s < 300.0  # it did not wait for the sink
    assert run.metrics[-1]["steps"] == good.rows["metrics"][-1]["steps"] == 400
    (warning,) = warnings_of(run)
    assert said in warning
    assert hostile.__name__ in warning  # type: ignore[attr-defined]
    assert caplog.messages == [warning]


def test_training_goes_on_beside_a_sink_that_fills_the_disk(mount_disk: Callable[[str], Path]) -> None:
    disk, is_read, is_free = mount_disk("4m"), threading.Event(), threading.Event()

    class FillsTheDisk(Kept):
        def write(self, kind: str, row: dict[str, Any]) -> None:
            with (disk / "filler").open("ab") as file:
                while True:
                    file.write(b"x" * 4_096)
                    file.flush()

        def close(self) -> None:
            is_read.wait(30.0)  # the disk stays full until a reading has come
            (disk / "filler").unlink()
            is_free.set()

    settings = CARTPOLE | {"max_steps": 10_000_000}
    with redline.training("CartPole-v1", "ppo", log_dir=disk, sinks=[FillsTheDisk()], **settings) as training:
        assert next(training)["steps"] > 0
        is_read.set()
        assert is_free.wait(30.0)
    assert training.run.metrics[-1]["steps"] > 0
    (warning,) = [message for message in warnings_of(training.run) if "FillsTheDisk" in message]
    assert "No space left on device" in warning


def test_a_run_that_is_refused_before_it_trains_opens_no_sink() -> None:
    opened = []

    def open_sink(start: RunStart) -> Kept:
        opened.append(start)
        return Kept()

    sinks = Sinks({"far": open_sink}, RunStart(Path(), {}, 0))
    sinks.write("events", {"event": "start", "steps": 0})
    sinks.close()
    assert opened == []


def test_a_hostile_sink_changes_nothing_of_what_is_learnt(tmp_path: Path) -> None:
    plain = redline.train("CartPole-v1", "ppo", log_dir=tmp_path / "plain", **CARTPOLE)
    beside = redline.train("CartPole-v1", "ppo", log_dir=tmp_path / "beside", sinks=[Raises()], **CARTPOLE)
    weights = [next(run.path.glob("checkpoints/*400*/weights.safetensors")).read_bytes() for run in (plain, beside)]
    assert weights[0] == weights[1]


def test_rows_for_a_sink_that_falls_behind_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    sinks = Sinks({"slow": lambda _: Sleeps()}, RunStart(Path(), {}, 0))
    sinks.begin()
    for steps in range(100):
        sinks.write("metrics", {"steps": steps})
    assert sinks.take_troubles() == ["slow does not keep up, rows are left out; training goes on"]
    assert sinks.take_troubles() == []


def test_a_sink_that_can_not_be_opened_is_told_of() -> None:
    def fail(start: RunStart) -> Kept:
        raise RuntimeError("no account")

    sinks = Sinks({"far": fail}, RunStart(Path(), {}, 0))
    sinks.begin()
    sinks.write("metrics", {"steps": 1})
    sinks.close()
    assert sinks.take_troubles() == ["far failed: RuntimeError('no account'); training goes on without it"]


def test_each_sink_has_rows_of_its_own() -> None:
    class Greedy(Kept):
        def write(self, kind: str, row: dict[str, Any]) -> None:
            row.clear()

    kept = Kept()
    sinks = Sinks({"greedy": lambda _: Greedy(), "kept": lambda _: kept}, RunStart(Path(), {}, 0))
    sinks.begin()
    sinks.write("metrics", {"steps": 1})
    sinks.close()
    assert kept.rows["metrics"] == [{"steps": 1}]


def points_of(run: Path, tag: str) -> list[tuple[int, float]]:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events: Any = accumulators.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def evaluation(mean: float, *, steps: int) -> dict[str, Any]:
    return {"event": "evaluation", "unix_s": 1.0, "steps": steps + 7, "weights_steps": steps, "mean_return": mean}


def write_evaluations(run: Path, means: dict[int, float], *, from_steps: int = 0) -> None:
    tracker = TensorBoard(RunStart(run, {}, from_steps))
    for steps, mean in means.items():
        tracker.write(EVENTS, evaluation(mean, steps=steps))
    tracker.close()


def test_each_evaluation_is_one_point_at_the_step_of_its_weights(tmp_path: Path) -> None:
    write_evaluations(tmp_path, {100: 1.0, 200: 2.5})
    assert points_of(tmp_path, "learning/greedy_return") == [(100, 1.0), (200, 2.5)]


def test_a_resume_hides_points_beyond_its_checkpoint_and_none_before(tmp_path: Path) -> None:
    write_evaluations(tmp_path, {100: 1.0, 200: 1.0, 300: 1.0})
    write_evaluations(tmp_path, {300: 2.0}, from_steps=200)
    assert points_of(tmp_path, "learning/greedy_return") == [(100, 1.0), (200, 1.0), (300, 2.0)]


def train(tmp_path: Path, *flags: str, **environ: str) -> Path:
    """Train in a process of its own, as a tracker is used, and return the run."""
    command = [sys.executable, "-m", "redline.cli.main", "train", "--env", "CartPole-v1", "--model", "ppo"]
    flags = ("--max-steps", "2048", "--log-dir", str(tmp_path / "runs"), "--monitor.hz", "0", "--json", *flags)
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, timeout=240, check=True, env={**os.environ, **environ}
    )
    summary = json.loads(done.stdout)
    assert "warning" not in (Path(summary["run"]) / "events.jsonl").read_text()
    return Path(summary["run"])


def test_weights_and_biases_keeps_a_run_offline_where_nobody_is_logged_in(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    folder = {name: str(tmp_path) for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "NETRC")}
    run = train(tmp_path, "--track", "wandb", **folder)
    (written,) = run.glob("wandb/offline-run-*/run-*.wandb")
    content = written.read_bytes()
    assert b"mean_return_100" in content
    assert b"explained_variance" in content


def test_a_tracker_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    for name, said in (("wandb", "pip install wandb"), ("wndb", "did you mean wandb")):
        assert main(["train", "--env", "CartPole-v1", "--track", name, "--log-dir", str(tmp_path)]) == BAD_INPUT
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
