"""Advice: only settings that exist and differ from the present ones, as they are typed."""

import shlex

import pytest

from redline.bench.knockout.advice import RULES, advise
from redline.bench.knockout.costs import PARTS
from redline.cli.flags import parse_train
from redline.runtime.building import place_roles
from redline.runtime.job import Job
from redline.runtime.topology import check_topology, settle_roles

ARGS = {
    "dqn on pong": [],
    "slow dqn on pong": ["--learner.threads", "1", "--actor.threads", "1", "--replay.codec", "lz4"],
    "rainbow on pong": ["--algo", "rainbow", "--replay.prefetch", "2"],
    "ppo on pong": ["--algo", "ppo"],
    "a2c on pong": ["--algo", "a2c"],
    "dqn on cartpole": ["--env", "CartPole-v1"],
    "pqn on cartpole": ["--env", "CartPole-v1", "--algo", "pqn", "--monitor.hz", "0"],
}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("redline.bench.knockout.advice", "redline.runtime.topology"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 2)


def settled(args: list[str]) -> Job:
    job = parse_train(args).job
    check_topology(job)
    is_image = "CartPole-v1" not in args
    return settle_roles(place_roles(job), is_image=is_image)[0]


def flags_for(args: list[str], part: str | None) -> list[str]:
    return [advice["flag"] for advice in advise(settled(args), part)]


@pytest.mark.parametrize("name", ARGS)
def test_every_flag_can_be_typed_and_changes_the_job(name: str) -> None:
    job = settled(ARGS[name])
    for flag in {advice["flag"] for part in PARTS for advice in advise(job, part)}:
        assert settled([*ARGS[name], *shlex.split(flag)]) != job, flag


def test_every_rule_has_its_day() -> None:
    jobs = [settled(args) for args in ARGS.values()]
    idle = [rule.why for rule in RULES if not any(rule.flag(job) for job in jobs)]
    assert idle == ["a GPU is there, and the network is computed on the CPU"]  # not on a machine without one


def test_the_likeliest_comes_first() -> None:
    assert flags_for([], "backward") == ["--batch-size 128", "--network small", "--samples-per-step 4"]
    assert flags_for(["--learner.threads", "1"], "backward")[0] == "--learner.threads 2"
    assert flags_for([], "sampling")[:2] == ["--replay.prefetch 1", "--replay.codec lz4"]
    assert flags_for(["--replay.prefetch", "1", "--replay.codec", "raw"], "sampling") == ["--samples-per-step 4"]
    assert flags_for(["--algo", "ppo"], "backward") == ["--network small", "--epochs 2"]
    assert flags_for([], "env") == ["--topology async", "--num-envs 16"]
    assert flags_for(["--algo", "ppo"], "env") == ["--num-envs 16"]
    assert flags_for([], "records") == ["--monitor.hz 0"]
    assert flags_for(["--monitor.hz", "0"], "records") == []


def test_nothing_is_advised_where_nothing_stands_out() -> None:
    assert flags_for([], None) == []
