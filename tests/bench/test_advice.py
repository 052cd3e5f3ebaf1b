"""Advice: only settings that exist and differ from the present ones, as they are typed."""

import shlex

import pytest

from redline.bench.costs import ENV_AND_LEARNER, PARTS, advise, remedies
from redline.bench.profiling import profiled_job
from redline.cli.flags import parse_train
from redline.errors import UserError
from redline.runtime.config import Job
from redline.runtime.resolve import check_topology, place_roles, resolve_roles

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
    for module in ("redline.bench.costs", "redline.runtime.resolve"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 2)


def settled(job: Job) -> Job:
    check_topology(job)
    return resolve_roles(place_roles(job), is_image=job.env.id != "CartPole-v1")[0]


def flags_for(args: list[str], *parts: str | None) -> list[str]:
    asked = parse_train(args).job
    return [advice["flag"] for advice in advise(settled(profiled_job(asked)[0]), *parts, asked=asked)]


@pytest.mark.parametrize("name", ARGS)
def test_every_flag_can_be_typed_and_changes_the_job(name: str) -> None:
    job = settled(parse_train(ARGS[name]).job)
    for flag in set(flags_for(ARGS[name], *PARTS, ENV_AND_LEARNER)):
        assert settled(parse_train([*ARGS[name], *shlex.split(flag)]).job) != job, flag


def test_every_rule_has_its_day() -> None:
    settings = "learner.threads batch_size network samples_per_step epochs replay.prefetch replay.codec sample"
    settings += " actor.threads topology num_envs monitor.hz"  # device: only where there is a GPU
    jobs = [settled(parse_train(args).job) for args in ARGS.values()]
    found = {remedy.key for job in jobs for remedy in remedies(job)}
    assert found - {"device"} == set(settings.split())


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


def test_envs_and_learner_side_by_side_are_both_made_cheaper() -> None:
    slow = ["--actor.threads", "1"]
    expected = ["--batch-size 128", "--network small", "--samples-per-step 4", "--actor.threads 2"]
    assert flags_for(slow, ENV_AND_LEARNER) == expected


def test_nothing_is_advised_that_was_typed_already_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flags_for(["--topology", "async"], "env") == ["--num-envs 16"]
    assert flags_for(["--actor.envs", "8"], "env") == ["--topology async"]  # it says how many envs there are
    assert flags_for(["--evaluate-every-steps", "1000"], "env") == ["--num-envs 16"]

    def refuse() -> None:
        raise UserError("Linux x86-64 only")

    monkeypatch.setattr("redline.runtime.resolve.check_platform", refuse)
    assert flags_for([], "env") == ["--num-envs 16"]


def test_nothing_is_advised_where_nothing_stands_out() -> None:
    assert flags_for([], None) == []
