"""Settings: the same for all contenders, and Redline's own defaults where they are not said otherwise."""

from dataclasses import replace
from pathlib import Path

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.bench.training.bench import with_window
from redline.bench.training.redline_worker import make_job
from redline.bench.training.settings import SETTINGS, DqnSetting, OnPolicySetting, from_json, to_json


@pytest.mark.parametrize("name", SETTINGS)
def test_a_worker_reads_what_it_was_given(name: str) -> None:
    setting = replace(SETTINGS[name], seed=7, seconds=3.5)
    assert from_json(to_json(setting)) == setting


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_rollouts_are_the_algorithms_default(name: str) -> None:
    preset = ALGORITHMS[name].atari
    job = make_job(SETTINGS[name], Path())
    assert job.algorithm == preset.algorithm
    assert job.num_envs == preset.num_envs


def test_dqn_differs_from_the_default_only_in_what_a_short_run_needs() -> None:
    job = make_job(SETTINGS["dqn"], Path())
    default = ALGORITHMS["dqn"].atari.algorithm
    short = {"explore": default.explore, "replay": default.replay, "warmup_steps": default.warmup_steps}
    assert replace(job.algorithm, **short) == default


def test_a_window_opens_after_the_warmup_that_is_asked_for() -> None:
    dqn = with_window(SETTINGS["dqn"], seconds=2.0, warmup_steps=500)
    assert isinstance(dqn, DqnSetting)
    assert (dqn.seconds, dqn.warmup_steps, dqn.epsilon_over_steps) == (2.0, 500, 500)
    ppo = with_window(SETTINGS["ppo"], seconds=2.0, warmup_steps=500)
    assert isinstance(ppo, OnPolicySetting)
    assert ppo.opens_at_steps == 500
    assert with_window(SETTINGS["a2c"], seconds=15.0, warmup_steps=None) == SETTINGS["a2c"]
