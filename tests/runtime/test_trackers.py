"""Trackers: what TensorBoard and others are told of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import BAD_INPUT, main
from redline.runtime import sinks
from redline.runtime.sinks import EVENTS, RunStart, TensorBoard


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
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    for name, said in (("wandb", "pip install 'redline[wandb]'"), ("wndb", "did you mean wandb")):
        assert main(["train", "--env", "CartPole-v1", "--track", name, "--log-dir", str(tmp_path)]) == BAD_INPUT
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
