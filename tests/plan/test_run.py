"""One run's memory, disk, cores, time and money, worked by hand, and the largest settings that fit."""

from dataclasses import replace
from decimal import Decimal

import pytest

from redline.algorithms.catalog import find_algorithm
from redline.envs.config import EnvConfig
from redline.episodes.estimate import MeasuredRecordings
from redline.plan.disk import DiskPlan
from redline.plan.run import (
    EMULATOR_BYTES,
    PEER_BYTES,
    PROGRAM_BYTES,
    CoresPlan,
    Footprint,
    Need,
    disk_need,
    footprint,
    plan_time,
    roles_of,
)
from redline.plan.time import Speed
from redline.replay import ReplayLayout
from redline.replay.layout import RESERVE_BYTES
from redline.runtime.config import ActorConfig, Job, LearnerConfig, Limits
from redline.types import EnvSpec

GB, MB = 10**9, 10**6
PONG = EnvSpec("pong", (84, 84), "uint8", stack=4, num_actions=6, frames_per_step=4)
HUNDRED_PER_S = Speed(Decimal(100), "steps/s", "measured", Decimal(80), Decimal(125))


def raw_replay(capacity: int) -> ReplayLayout:
    return ReplayLayout(capacity=capacity, frame_shape=(84, 84), frame_dtype="uint8", stack=4, lanes=1, codec="raw")


def test_memory_is_the_replay_and_at_least_the_reserve_that_a_run_asks_for() -> None:
    layout = raw_replay(100_000)
    small = Footprint(layout, num_envs=8, actors=1, fixed_bytes=400 * MB, env_bytes=MB)
    need = small.need(10 * GB)
    assert need.parts == {"replay memory": layout.ram_bytes, "programs, networks and envs": RESERVE_BYTES}
    assert (need.fits, need.remedy) == (True, None)
    assert small.need(need.needed_bytes).fits
    assert not small.need(need.needed_bytes - 1).fits


def test_a_replay_that_does_not_fit_names_the_largest_capacity_that_does() -> None:
    need = Footprint(raw_replay(1_000_000), num_envs=8, actors=1, fixed_bytes=GB, env_bytes=0).need(4 * GB)
    assert not need.fits
    assert need.remedy == "--replay.capacity 410_000"  # 3 GB of 7,056 bytes a frame and 3 % beside
    assert raw_replay(410_000).ram_bytes <= 3 * GB < raw_replay(420_000).ram_bytes


def test_envs_that_do_not_fit_name_the_largest_number_that_does() -> None:
    found = Footprint(None, num_envs=1_000, actors=1, fixed_bytes=400 * MB, env_bytes=4 * MB)
    assert found.need(2 * GB).parts == {"programs, networks and envs": 4_400 * MB}
    assert found.need(2 * GB).remedy == "--num-envs 400"
    assert replace(found, actors=16, num_envs=1_024).need(2 * GB).remedy == "--num-envs 400"  # 25 for each actor
    assert replace(found, actors=64, num_envs=1_024).need(2 * GB).remedy == "--num-envs 384"
    assert found.need(100 * MB).remedy is None  # the program alone is too large


def test_rollouts_take_memory_for_every_step_of_every_env() -> None:
    ppo = find_algorithm("ppo").atari.algorithm
    job = Job(env=EnvConfig(id="pong"), algorithm=ppo, num_envs=16)
    found = footprint(job, PONG, None, network_bytes=27 * MB)
    row_bytes = 4 * 84 * 84 + 8 + 4 * 4 + 2  # an observation; an action, four floats and two flags
    assert found.env_bytes == EMULATOR_BYTES + 128 * row_bytes
    assert found.fixed_bytes == PROGRAM_BYTES + 27 * MB


def test_each_process_beside_the_learner_takes_memory() -> None:
    job = Job(env=EnvConfig(id="pong"), topology="async", actors=2, num_envs=8)
    found = footprint(job, PONG, None, network_bytes=0)
    assert found.fixed_bytes == PROGRAM_BYTES + 4 * PEER_BYTES  # two actors, the supervisor and the evaluator


def test_measured_processes_take_the_place_of_what_was_computed() -> None:
    job = Job(env=EnvConfig(id="pong"), num_envs=10)
    found = footprint(job, PONG, None, network_bytes=27 * MB, measured_bytes=900 * MB)
    assert found.beside_bytes == 900 * MB


def disk(*, free_bytes: int, replay_bytes: int = 0) -> DiskPlan:
    measured = MeasuredRecordings(num_steps=9_000, num_episodes=10, recorded_bytes=7_200, is_measured=True)
    return DiskPlan(
        env="pong",
        algorithm="dqn",
        steps=50_000_000,
        steps_per_s=500.0,
        record="all",
        has_values=False,
        num_actions=6,
        cores=2,
        measured=measured,
        checkpoints_bytes=100 * MB,
        replay_bytes=replay_bytes,
        free_bytes=free_bytes,
        path="runs",
    )


def test_recordings_that_do_not_fit_are_thinned_out_as_little_as_possible() -> None:
    whole = disk(free_bytes=0)  # 40 MB of recordings
    free = whole.total_bytes - 30 * MB
    need = disk_need(disk(free_bytes=free), None, lambda layout: 0)
    assert need.remedy is not None
    assert need.remedy.startswith("--record ")
    every = int(need.remedy.split()[1])
    assert replace(disk(free_bytes=free), record=str(every)).fits
    assert not replace(disk(free_bytes=free), record=str(every - 1)).fits
    assert disk_need(disk(free_bytes=whole.total_bytes), None, lambda layout: 0).remedy is None


def test_a_replay_too_large_for_the_checkpoints_is_made_smaller() -> None:
    layout = raw_replay(1_000_000)
    need = disk_need(
        disk(free_bytes=10 * GB, replay_bytes=5 * layout.num_bytes), layout, lambda smaller: 5 * smaller.num_bytes
    )
    assert not need.fits
    assert need.remedy is not None
    assert need.remedy.startswith("--replay.capacity ")
    capacity = int(need.remedy.split()[1])
    beside = disk(free_bytes=0).total_bytes
    assert beside + 5 * raw_replay(capacity).num_bytes <= 10 * GB < beside + 5 * raw_replay(capacity + 10_000).num_bytes


def test_where_recordings_and_replay_both_are_too_large_both_are_changed() -> None:
    layout = raw_replay(1_000_000)
    plan = disk(free_bytes=0, replay_bytes=5 * layout.num_bytes)
    free = plan.total_bytes - plan.replay_bytes - 10 * MB  # too little for the recordings alone
    need = disk_need(replace(plan, free_bytes=free), layout, lambda smaller: 5 * smaller.num_bytes)
    assert need.remedy is not None
    assert need.remedy.endswith(" --record off")
    capacity = int(need.remedy.split()[1])
    assert replace(plan, free_bytes=free, record="off", replay_bytes=5 * raw_replay(capacity).num_bytes).fits


def test_a_disk_without_room_for_a_checkpoint_has_no_remedy() -> None:
    assert disk_need(disk(free_bytes=MB), None, lambda layout: 0).remedy is None
    assert Need("disk", {"a": 3, "b": 4}, 7).fits


def test_threads_beyond_the_cores_are_named_with_as_many_as_there_are() -> None:
    job = Job(num_envs=8, actor=ActorConfig(threads=2), learner=LearnerConfig(threads=8))
    assert CoresPlan(2, roles_of(job), {}).to_json()["too_many"] == {"learner": "--learner.threads 2"}
    assert CoresPlan(8, roles_of(job), {}).to_json()["too_many"] == {}


def plan(*, price: str | None = None, **limits: float | None) -> dict[str, object]:
    job = Job(limits=Limits(**{"max_steps": None, **limits}))  # type: ignore[arg-type]
    found = plan_time(job, "pong", HUNDRED_PER_S, frames_per_step=4, price=None if price is None else Decimal(price))
    return {} if found is None else found.to_json()


def test_time_is_the_steps_through_the_speed_and_money_the_shown_hours_times_the_price() -> None:
    found = plan(max_steps=3_600_000, price="0.5")  # 36,000 s
    assert (found["hours"], found["low"], found["high"], found["cost"]) == (10, 8, 12.5, 5)
    assert (found["steps"], found["rate"], found["rate_source"]) == (3_600_000, 100, "measured")
    assert plan(max_frames=14_400_000)["hours"] == 10
    assert plan(max_steps=3_600_000)["cost"] is None


def test_the_first_limit_ends_a_run() -> None:
    found = plan(max_steps=3_600_000, max_minutes=90.0, price="2")
    assert (found["hours"], found["low"], found["high"], found["cost"]) == (1.5, 1.5, 1.5, 3)
    assert found["ends_by"] == "90 minutes"
    late = plan(max_steps=3_600_000, max_minutes=660.0)  # 11 h: only a slow run is stopped by the clock
    assert (late["hours"], late["low"], late["high"]) == (10, 8, 11)
    assert plan() == {}


def test_episodes_count_where_their_length_is_known() -> None:
    job = Job(limits=Limits(max_steps=None, max_episodes=1_000))
    assert plan_time(job, "pong", HUNDRED_PER_S, frames_per_step=4, price=None) is None
    known = replace(HUNDRED_PER_S, episode_steps=Decimal(900))
    found = plan_time(job, "pong", known, frames_per_step=4, price=None)
    assert found is not None
    assert found.to_json()["hours"] == pytest.approx(2.5)  # 900,000 steps
    assert found.ends_by == "1,000 episodes of 900 steps"
