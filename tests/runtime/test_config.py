"""Jobs as plain data and back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.networks import Mlp, Small
from redline.runtime.config import ActorConfig, EvaluatorConfig, Job, Limits, from_settings, to_settings
from redline.runtime.counters import Counters, Scores


def test_a_job_survives_json() -> None:
    job = Job(
        env=EnvConfig("CartPole-v1", stack=1, skip=1),
        algorithm=replace(DQN_CLASSIC, network=Mlp((7, 5)), batch_size=17),
        limits=Limits(max_steps=None, target_return=195.0),
        log_dir=Path("somewhere"),
        seed=3,
        topology="async",
        actors=2,
        actor=ActorConfig(envs=4, device="cpu", threads=1, sync_steps=8),
        evaluator=EvaluatorConfig(every_minutes=2.0),
        push="episode",
        pacing="free",
    )
    assert from_settings(Job(), json.loads(json.dumps(to_settings(job)))) == job


@pytest.mark.parametrize("domain", ["atari", "classic"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_survives_json(name: str, domain: str) -> None:
    job = Job(algorithm=getattr(ALGORITHMS[name], domain).algorithm)
    start = Job(algorithm=ALGORITHMS[name].atari.algorithm)
    assert from_settings(start, json.loads(json.dumps(to_settings(job)))) == job


def test_names_and_dashes_work_as_on_the_command_line() -> None:
    job = from_settings(Job(), {"env": "breakout", "network": "small", "batch-size": 64, "replay": {"capacity": 5_000}})
    assert (job.env.id, job.algorithm.network, job.algorithm.batch_size) == ("breakout", Small(), 64)
    assert job.algorithm.replay.capacity == 5_000


def test_a_part_can_be_named_and_set_in_one_table() -> None:
    assert from_settings(Job(), {"network": {"name": "small", "width": 9}}).algorithm.network == Small(width=9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replay": {"capcity": 5}}, r"unknown setting 'replay.capcity': did you mean replay.capacity"),
        ({"max_stepz": 5}, "did you mean max_steps"),
        ({"batch_size": "many"}, "batch_size is 'many', but it takes a value of type int"),
        ({"batch_size": 1.5}, "type int"),
        ({"batch_size": True}, "type int"),
        ({"replay": 5}, "replay is 5"),
        ({"network": {"name": "natur"}}, "did you mean nature"),
        ({"network": 5}, "network is 5"),
        ({"env": {"size": -3}}, "env.size is -3"),
        ({"topology": "sync"}, "setting topology is 'sync': use inline or async"),
        ({"pacing": None}, "setting pacing is None: use held or lockstep or free"),
        ({"push": ["step"]}, r"setting push is \['step'\]: use step or chunk or episode"),
        ({"actor": {"envs": "two"}}, "actor.envs is 'two', but it takes a value of type int"),
        ({"evaluator": {"every_minutes": "often"}}, "every_minutes is 'often', but it takes a value of type float"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_settings(Job(), settings)


def test_whole_numbers_do_for_words_that_may_be_numbers() -> None:
    assert from_settings(Job(), {"record": 3}).recording.record == "3"


def test_whole_numbers_do_for_fractions() -> None:
    assert from_settings(Job(), {"samples_per_step": 4}).algorithm.samples_per_step == 4.0


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_steps=1_000), "max-steps 1,000 reached"),
        (Limits(max_steps=1_001), None),
        (Limits(max_steps=None, max_frames=4_000), "max-frames 4,000 reached"),
        (Limits(max_steps=None, max_frames=4_001), None),
        (Limits(max_episodes=100), "max-episodes 100 reached"),
        (Limits(max_episodes=101), None),
        (Limits(max_minutes=1.5), "max-minutes 1.5 reached"),
        (Limits(max_minutes=1.6), None),
        (Limits(target_return=7.0), "target-return 7 reached"),
        (Limits(target_return=7.1), None),
        (Limits(max_steps=1, target_return=7.0), "target-return 7 reached"),
        (Limits(max_steps=None), None),
    ],
)
def test_a_run_ends_at_its_first_limit(limits: Limits, reason: str | None) -> None:
    counters, scores = Counters(steps=1_000, episodes=100), Scores(recent_returns=[7.0] * 100)
    assert limits.reached(counters, scores, frames_per_step=4, invocation_s=90.0) == reason


def test_a_target_needs_a_whole_hundred_of_episodes() -> None:
    scores = Scores(recent_returns=[7.0] * 99)
    assert Limits(target_return=7.0).reached(Counters(), scores, frames_per_step=4, invocation_s=0.0) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"checkpoint_minutes": float("inf")},
        {"checkpoint_minutes": 1e-320},
        {"max_minutes": 1e-320},
        {"max_minutes": float("nan")},
        {"max_steps": 99999999999999999999},
        {"predict": {"huber_delta": 1e-320}},
        {"optimizer": {"lr": 1e308}},
        {"env": {"max_episode_frames": 2**31}},
        {"env": {"max_episode_frames": 99999999999999999999}},
        {"log_dir": "a\x00b"},
        {"log_dir": "\udcff"},
        {"device": "cpu\x1b[31m"},
    ],
)
def test_what_no_setting_can_mean_is_refused_wherever_it_comes_from(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        from_settings(Job(), settings)
