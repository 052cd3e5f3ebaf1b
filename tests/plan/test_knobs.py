"""Which changes are tried, which are refused, what is said of every knob, and what holds a training up."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.catalog import ALGORITHMS, find_algorithm
from redline.cli.flags import parse_train
from redline.cli.plan.speed import typed_knobs
from redline.envs.config import EnvConfig
from redline.plan import knobs, speed_result
from redline.plan.knobs import (
    EXACT,
    KNOBS,
    LEARNING,
    NEARLY,
    Asked,
    Vary,
    changed,
    kind_of,
    may_be_chosen,
    measured_job,
    name_of,
    ways,
    why_impossible,
)
from redline.plan.speed import Choice, Gain, Standing, Window
from redline.plan.speed_plan import DEFAULT, SpeedPlan
from redline.plan.speed_result import find_bottleneck, result_of, settings_of
from redline.runtime.config import Job, flag_of
from redline.runtime.resolve import resolve_job

CORES = 4
CARTPOLE = Job(env=EnvConfig(id="CartPole-v1", stack=1, skip=1), algorithm=find_algorithm("dqn").classic.algorithm)
PPO = replace(CARTPOLE, algorithm=find_algorithm("ppo").classic.algorithm)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("redline.plan.knobs", "redline.plan.speed_result", "redline.runtime.resolve"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: CORES)


def tried(job: Job, vary: Vary = "exact", typed: frozenset[str] = frozenset()) -> list[Mapping[str, Any]]:
    return [dict(changes) for changes in ways(Asked(job, "dqn", vary, typed), resolve_job(job))]


def test_by_default_only_what_leaves_learning_alone_is_tried() -> None:
    found = tried(CARTPOLE)
    assert {kind_of(changes) for changes in found} == {EXACT}
    assert {"learner.threads": 2} in found  # the default for vectors is 1
    assert {"learner.threads": 1} not in found  # what runs anyway is no candidate
    assert {"replay.prefetch": 1} in found
    assert not any("replay.codec" in changes for changes in found)  # vectors are always raw


def test_threads_of_emulators_and_codecs_are_tried_for_games() -> None:
    pong = parse_train(["--env", "pong", "--replay.bytes", "1000000000"]).job  # else it is played for a moment
    found = tried(pong)
    assert {"actor.threads": 1} in found
    assert {"replay.codec": "raw"} in found
    assert {"learner.threads": CORES} not in found  # the default for pictures


def test_each_kind_of_knob_must_be_asked_for() -> None:
    nearly, everything = tried(CARTPOLE, "nearly"), tried(CARTPOLE, "all")
    assert {kind_of(changes) for changes in nearly} == {EXACT, NEARLY}
    assert {"topology": "async", "actors": 8} in nearly  # one for each env
    assert {kind_of(changes) for changes in everything} == {EXACT, NEARLY, LEARNING}
    assert {"num_envs": 16} in everything


def test_a_typed_knob_stays_as_it_is() -> None:
    assert {"learner.threads": 2} in tried(CARTPOLE)
    found = tried(CARTPOLE, "nearly", frozenset({"learner.threads", "topology"}))
    assert not any({"learner.threads", "topology"} & changes.keys() for changes in found)


def test_rollouts_are_tried_without_replay_memory_and_without_processes() -> None:
    keys = {key for changes in tried(PPO, "all") for key in changes}
    assert keys <= {"learner.threads", "learner.precision", "num_envs", "batch_size", "epochs"}


def test_learning_from_fewer_samples_is_shown_and_not_chosen() -> None:
    assert not may_be_chosen({"samples_per_step": 4.0})
    assert not may_be_chosen({"epochs": 2})
    assert may_be_chosen({"batch_size": 128, "num_envs": 16})


def test_every_way_makes_a_job_that_runs_or_says_why_not() -> None:
    for changes in tried(CARTPOLE, "all"):
        job = changed(Asked(CARTPOLE, "dqn", "all"), changes)
        assert job != CARTPOLE
        assert why_impossible(job, is_image=False) is None, name_of(changes)
    three = replace(CARTPOLE, num_envs=3, topology="async", actors=2)
    assert "can't be shared out evenly" in str(why_impossible(three, is_image=False))


def test_only_values_count_as_typed_not_the_request_to_choose_one() -> None:
    args = ["--learner.threads", "0", "--actor.threads=2", "--batch_size", "64", "--seed", "3"]
    assert typed_knobs(args) == {"actor.threads", "batch_size"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_soon_when_it_is_measured(name: str, tmp_path: Path) -> None:
    job = Job(env=EnvConfig(id="CartPole-v1", stack=1, skip=1), algorithm=find_algorithm(name).classic.algorithm)
    measured = resolve_job(measured_job(job, resolve_job(job), tmp_path)).job
    assert measured.algorithm.warmup_steps <= min(2_000, job.algorithm.warmup_steps)
    replay = measured.algorithm.replay
    assert replay is None or replay.capacity >= 2 * measured.algorithm.batch_size
    assert (measured.limits.max_steps, measured.track, measured.log_dir) == (None, (), tmp_path)


# What is said of every knob


def plan_of(asked: Asked, chosen: Mapping[str, Any] | None = None) -> SpeedPlan:
    """A plan in which everything was measured at the same speed, or the chosen changes a fifth faster."""
    before, changes = resolve_job(asked.job), {DEFAULT: {}}
    windows = [Window(steps=500, updates=125, seconds=1.0)] * 5
    standings = {DEFAULT: Standing(windows)}
    for change in ways(asked, before):
        changes[name_of(change)] = dict(change)
        standings[name_of(change)] = Standing(windows, Gain(1.0, 0.9, 1.1))
    name = name_of(chosen or {})
    changes[name] = dict(chosen or {})
    standings[name] = Standing(windows, Gain(1.2, 1.1, 1.3), final_rounds=5)
    choice = Choice(name, "measured", standings, repeats=0, disturbed=0, others_percent=0.0)
    after = resolve_job(changed(asked, chosen or {}))
    return SpeedPlan(asked, 120.0, before, after, choice, changes, {}, {"others_percent": 0.0, "duration_s": 100.0})


def test_requested_becomes_effective_with_reason_and_gain() -> None:
    plan = plan_of(Asked(CARTPOLE, "dqn"), {"learner.threads": 2})
    rows = {row["setting"]: row for row in settings_of(plan)}
    assert set(rows) == {flag_of(key).removeprefix("--") for key in KNOBS if key != "epochs"}
    threads = rows["learner.threads"]
    assert (threads["requested"], threads["effective"]) == ("auto", 2)
    assert threads["why"] == "1.20 × (1.10–1.30) the speed"
    assert threads["gain"] == {"ratio": 1.2, "low": 1.1, "high": 1.3}
    assert rows["replay.prefetch"]["why"] == "nothing tried was faster beyond doubt"
    assert rows["topology"]["why"].startswith("not varied: --vary nearly does")
    assert rows["replay.codec"]["effective"] == "raw"
    assert plan.job.learner.threads == 2


def test_beside_each_speed_stands_what_it_does_to_learning() -> None:
    result = result_of(plan_of(Asked(CARTPOLE, "dqn", "all"), {"batch_size": 128}))
    rows = {row["name"]: row for row in result["candidates"]}
    assert rows[DEFAULT]["updates_per_step"] == 0.25
    assert rows[DEFAULT]["samples_per_step"] == 0.25 * CARTPOLE.algorithm.batch_size
    assert rows["--batch-size 128"]["samples_per_step"] == 32.0
    assert rows["--batch-size 128"]["state"] == "chosen"
    assert rows["--samples-per-step 16.0"]["state"].startswith("shown only")


# one impossible value for each knob: refused in one line, or found in requested → effective
REFUSED = [
    (["--learner.threads", "10000"], "learner.threads is 10000: use 0"),
    (["--actor.threads", "-1"], "actor.threads is -1: use 0"),
    (["--replay.prefetch", "1000000000"], "replay.prefetch is 1000000000: use 0 to 64"),
    (["--replay.prefetch", "1e9"], "--replay.prefetch is '1e9'"),
    (["--replay.codec", "gzip"], "unknown replay.codec 'gzip'"),
    (["--learner.precision", "fp8"], "--learner.precision is 'fp8'"),
    (["--topology", "cluster"], "--topology is 'cluster'"),
    (["--topology", "async", "--actors", "500"], "actors is 500: use 1 to 128"),
    (["--actors", "5"], "add --topology async"),
    (["--topology", "async", "--push", "week"], "--push is 'week'"),
    (["--push", "chunk"], "add --topology async"),
    (["--num-envs", "100000"], "num-envs is 100000: use 1 to 1_024"),
    (["--batch-size", "5000", "--replay.capacity", "1000"], "batch-size is 5_000, but the replay memory holds 1_000"),
    (["--samples-per-step", "0"], "samples-per-step is 0.0"),
    (["--model", "ppo", "--epochs", "0"], "epochs is 0"),
    (["--model", "ppo", "--replay.prefetch", "2"], "has no replay memory"),
    (["--model", "ppo", "--topology", "async"], "needs a replay memory"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=[" ".join(args) for args, _ in REFUSED])
def test_an_impossible_value_is_refused_in_one_line(args: list[str], message: str, refused: Any) -> None:
    refused(["plan", "speed", "--env", "CartPole-v1", *args], message)


def test_every_knob_has_an_impossible_value_in_these_tests() -> None:
    typed = {word.removeprefix("--") for args, _ in REFUSED for word in args}
    assert {flag_of(key).removeprefix("--") for key in KNOBS} <= typed


@pytest.mark.parametrize("is_typed", [True, False])
def test_more_threads_than_cores_are_kept_and_said(is_typed: bool) -> None:
    args = ["--env", "pong", "--learner.threads", "1000", "--actor.threads", "1000", "--replay.codec", "raw"]
    asked = Asked(parse_train(args).job, "dqn", typed=frozenset(typed_knobs(args) if is_typed else ()))
    rows = {row["setting"]: row for row in settings_of(plan_of(asked))}
    for name in ("learner.threads", "actor.threads"):
        assert (rows[name]["requested"], rows[name]["effective"]) == (1000, 1000)
        assert rows[name]["why"].endswith(", although this machine has 4 cores")


def test_threads_that_envs_do_not_have_are_said_to_be_one() -> None:
    args = ["--env", "CartPole-v1", "--actor.threads", "8"]
    rows = {row["setting"]: row for row in settings_of(plan_of(Asked(parse_train(args).job, "dqn")))}
    threads = rows["actor.threads"]
    told = (threads["requested"], threads["effective"], threads["why"])
    assert told == (8, 1, "only Atari games step on several threads")


def test_all_knobs_have_a_kind_that_can_be_asked_for() -> None:
    assert set(KNOBS.values()) == {kind for kinds in knobs.TRIED.values() for kind in kinds}
    assert set(speed_result.WHAT_CHANGES) == set(KNOBS.values()) - {EXACT}


# The bottleneck, from shares of the time worked by hand


def inline(*, learn: float, act: float, envs: float) -> list[Window]:
    phases = {"act": act, "draw": 0.0, "learn": learn, "keep": envs, "other": 0.0}
    return [Window(steps=100, updates=25, seconds=1.0, phases=phases, waits={"inline": {"envs": envs}})]


def processes(*, learner: dict[str, float], actor: dict[str, float]) -> list[Window]:
    waits = {"learner": learner, "actor-0": actor, "actor-1": actor}
    return [Window(steps=100, updates=25, seconds=1.0, waits=waits)]


def test_in_one_process_the_largest_share_holds_the_rest_up() -> None:
    learner = find_bottleneck(inline(learn=0.8, act=0.1, envs=0.05))
    assert learner.part == "learner"
    assert "learning take 80 % of the time" in learner.sentence
    emulation = find_bottleneck(inline(learn=0.1, act=0.1, envs=0.7))
    assert (emulation.part, "70 % of the time the envs" in emulation.sentence) == ("emulation", True)
    assert find_bottleneck(inline(learn=0.2, act=0.6, envs=0.1)).part == "acting"


def test_among_processes_the_one_that_never_waits_holds_the_rest_up() -> None:
    busy = find_bottleneck(processes(learner={"actors": 0.1}, actor={"learner": 0.6, "envs": 0.2}))
    assert (busy.part, busy.sentence) == ("learner", "The learner: it works 90 % of the time.")
    asleep = find_bottleneck(processes(learner={"actors": 0.7, "gather": 0.1}, actor={"envs": 0.9, "learner": 0.0}))
    assert asleep.part == "emulation"
    assert "the learner works 20 %" in asleep.sentence
    assert find_bottleneck(processes(learner={"actors": 0.5}, actor={"envs": 0.1, "learner": 0.05})).part == "acting"
    assert find_bottleneck(processes(learner={"actors": 0.5}, actor={"envs": 0.1, "learner": 0.5})).part == "waiting"


def test_without_windows_nothing_is_claimed() -> None:
    assert find_bottleneck([]).part == "unknown"
