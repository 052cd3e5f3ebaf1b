"""Rings as the learner sees them: what it takes when, and what actors can rely on when they get room."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.learner import Learner
from redline.replay import ReplayConfig
from redline.replay.shared_lanes import LOCKSTEP, LaneWriter, PushRule, SharedLanes
from redline.runtime.actor import Episode
from redline.runtime.building import build_source
from redline.runtime.config import Job
from redline.runtime.counters import TAKES_PER_UPDATE
from redline.runtime.processes import roles
from redline.runtime.processes.roles import RingWorld
from redline.runtime.processes.shared import (
    FIRST_ACTOR,
    LEARNER,
    WAITS,
    SharedStatus,
    SharedWeights,
    Slot,
    encode_letter,
)
from redline.runtime.resolve import resolve_job
from redline.runtime.training import Trainer

WIDE = PushRule(records=1, records_ahead=60)
ENVS = 2  # of each actor
WARMUP_STEPS = 8
BATCH_SIZE = 8
ASKING = FIRST_ACTOR


@dataclass(frozen=True)
class Table:
    """A learner and the rings of its actors, all in this process."""

    trainer: Trainer
    lanes: SharedLanes
    weights: SharedWeights
    status: SharedStatus
    writers: list[LaneWriter]

    @property
    def waited_s(self) -> float:
        """Seconds that the learner waited for actors."""
        return float(self.status.waited_s[LEARNER, WAITS.index("actors")])

    @property
    def held(self) -> int:
        """Steps in the replay memory."""
        memory = self.trainer.source.memory
        assert memory is not None
        return memory.num_transitions


@pytest.fixture
def set_table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Table]:
    monkeypatch.setattr(roles, "PATIENCE_S", 0.01)

    def set_up(*, actors: int = 1, rule: PushRule = WIDE, samples_per_step: float = 4.0, **of_job: Any) -> Table:
        algorithm = replace(
            DQN_CLASSIC,
            warmup_steps=WARMUP_STEPS,
            batch_size=BATCH_SIZE,
            samples_per_step=samples_per_step,
            replay=ReplayConfig(capacity=1_000),
        )
        env = EnvConfig("CartPole-v1", stack=1, skip=1)
        job = Job(env=env, algorithm=algorithm, topology="async", actors=actors, num_envs=ENVS * actors, **of_job)
        resolved = resolve_job(job)
        spec, resources = resolved.spec, ExitStack()
        learner = Learner(resolved.job.algorithm, spec, seed=1, device=resolved.device)
        status = SharedStatus(actors)
        lanes = SharedLanes(ENVS * actors, spec.frame_shape, spec.frame_dtype, rule=rule, mail_bytes=10_000)
        weights = SharedWeights(learner.online.state_dict(), readers=FIRST_ACTOR + actors)
        world = RingWorld(spec, lanes=lanes, weights=weights, slot=Slot(status, LEARNER), envs_per_actor=ENVS)
        source = build_source(resolved, learner, resources)
        trainer = Trainer(resolved.job, world=world, env_seed=None, source=source, learner=learner, resources=resources)
        request.addfinalizer(trainer.close)
        world.publish(trainer.turn())
        writers = [LaneWriter(lanes, np.arange(ENVS) + ENVS * actor) for actor in range(actors)]
        for writer in writers:
            writer.begin(np.zeros((ENVS, *spec.frame_shape), np.float32))
        return Table(trainer, lanes, weights, status, writers)

    return set_up


def push(writer: LaneWriter, steps: int = 1, episodes: list[Episode] | None = None) -> None:
    """Write steps of all lanes of an actor, at the last of which some episodes end."""
    nothing = np.zeros(ENVS, np.bool_)
    for step in range(steps):
        ended = episodes or [] if step == steps - 1 else []
        over = nothing.copy()
        over[[episode.lane for episode in ended]] = True
        frames = np.full((ENVS, 4), step, np.float32)
        writer.append(
            actions=np.zeros(ENVS, np.int64),
            reward=np.ones(ENVS, np.float32),
            return_ends=nothing,
            episode_ends=over,
            frames=frames,
            first_frames=frames,
            letters=[encode_letter(episode) for episode in ended],
        )


def test_held_takes_one_step_of_each_lane_at_a_time(set_table: Callable[..., Table]) -> None:
    table = set_table(actors=2)
    for writer in table.writers:
        push(writer, steps=7)
    taken = []
    for _ in range(8):
        table.trainer.vector_step()
        taken.append(table.trainer.counters.steps)
    assert taken == [4, 8, 12, 16, 20, 24, 28, 28]
    assert table.trainer.counters.vector_steps == 7
    assert table.held == 28
    # the updates that 24 steps have earned: the last step's are due in the next vector step
    assert table.trainer.counters.updates == (28 - WARMUP_STEPS) * 4 // BATCH_SIZE


def test_actors_need_not_keep_step_with_each_other(set_table: Callable[..., Table]) -> None:
    table = set_table(actors=2)
    fast, slow = table.writers
    push(fast, steps=3)
    push(slow, steps=1)
    counts = []
    for _ in range(4):
        table.trainer.vector_step()
        counts.append((table.trainer.counters.steps, table.trainer.counters.vector_steps))
    assert counts == [(4, 1), (6, 1), (8, 2), (8, 2)]
    push(slow, steps=1)
    table.trainer.vector_step()
    assert (table.trainer.counters.steps, table.trainer.counters.vector_steps, table.held) == (10, 2, 10)


def test_weights_and_progress_are_there_before_an_actor_gets_room_and_is_rung(
    set_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = set_table()
    push(table.writers[0], steps=8)
    for _ in range(7):
        table.trainer.vector_step()
    events: list[tuple[str, int, int, int]] = []

    def note(owner: object, name: str) -> None:
        """Note after each call what an actor would see."""
        whole = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            result = whole(*args, **kwargs)
            taken = int(table.lanes.tail[0])
            events.append((name, table.weights.number, table.status.run_steps, taken))
            return result

        monkeypatch.setattr(owner, name, noted)

    note(table.weights, "publish")
    note(table.status, "show_progress")
    note(table.lanes, "release")
    note(table.status.bells[FIRST_ACTOR], "ring")
    table.weights.ask(ASKING)
    table.trainer.vector_step()
    # six steps were shown, and the room of six was given back, besides that of a cut and a beginning; now the seventh's
    assert events == [
        ("publish", 2, 6 * ENVS, 6 + 2),
        ("show_progress", 2, 7 * ENVS, 6 + 2),
        ("release", 2, 7 * ENVS, 7 + 2),
        ("ring", 2, 7 * ENVS, 7 + 2),
    ]


def test_progress_shown_with_room_counts_the_steps_whose_room_it_is(set_table: Callable[..., Table]) -> None:
    table = set_table(rule=LOCKSTEP)
    table.trainer.vector_step()
    for number in range(1, 10):
        table.trainer.vector_step()
        assert table.writers[0].may_step
        assert table.status.run_steps == (number - 1) * ENVS
        assert table.status.run_updates <= table.trainer.counters.updates
        push(table.writers[0])
        assert not table.writers[0].may_step
        table.trainer.vector_step()
        assert not table.writers[0].may_step  # taken, and the room not given back yet


def test_weights_are_published_if_somebody_asks_and_there_are_newer_ones(set_table: Callable[..., Table]) -> None:
    table = set_table(samples_per_step=1.0)  # an update for each four vector steps
    trainer = table.trainer
    push(table.writers[0], steps=40)
    while trainer.counters.updates < 3:
        trainer.vector_step()
    assert table.weights.number == 1  # nobody asked
    table.weights.ask(ASKING)
    trainer.vector_step()
    assert table.weights.number == 2
    assert table.weights.read(trainer.learner.online.state_dict()).updates == trainer.counters.updates == 3
    table.weights.ask(ASKING)
    trainer.vector_step()
    assert trainer.counters.updates == 3
    assert table.weights.number == 2  # nothing was learnt since
    while trainer.counters.updates < 4:
        trainer.vector_step()
    trainer.vector_step()
    assert table.weights.number == 3  # it is still wanted


def test_only_actors_that_get_room_are_rung(set_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch) -> None:
    table = set_table(actors=3)
    rung: list[int] = []
    for slot, bell in enumerate(table.status.bells):
        monkeypatch.setattr(bell, "ring", lambda slot=slot: rung.append(slot))
    table.trainer.vector_step()
    table.trainer.vector_step()
    assert rung == [FIRST_ACTOR, FIRST_ACTOR + 1, FIRST_ACTOR + 2]  # their beginnings were taken
    rung.clear()
    push(table.writers[1])
    table.trainer.vector_step()
    assert rung == []
    table.trainer.vector_step()
    assert rung == [FIRST_ACTOR + 1]


@pytest.mark.parametrize("warmed_up", [False, True])
def test_free_takes_at_most_so_many_steps_of_a_lane_between_two_updates(
    warmed_up: bool, set_table: Callable[..., Table]
) -> None:
    table = set_table(pacing="free")
    trainer = table.trainer
    if warmed_up:
        push(table.writers[0], steps=5)
        trainer.vector_step()
        trainer.vector_step()
    before = trainer.counters.steps
    push(table.writers[0], steps=3 * TAKES_PER_UPDATE - 2)
    taken = []
    for _ in range(4):
        trainer.vector_step()
        taken.append((trainer.counters.steps - before) // ENVS)
    assert taken == [TAKES_PER_UPDATE, 2 * TAKES_PER_UPDATE, 3 * TAKES_PER_UPDATE - 2, 3 * TAKES_PER_UPDATE - 2]
    assert table.held == trainer.counters.steps


def test_free_learns_on_without_new_steps_and_waits_for_nobody(set_table: Callable[..., Table]) -> None:
    table = set_table(pacing="free")
    trainer = table.trainer
    push(table.writers[0], steps=2)
    trainer.vector_step()
    assert (trainer.counters.steps, table.waited_s) == (4, 0.0)
    trainer.vector_step()
    waited_s = table.waited_s
    assert waited_s > 0.0  # in the warm-up there is nothing else to do
    push(table.writers[0], steps=3)
    trainer.vector_step()
    assert trainer.counters.steps == 10 > WARMUP_STEPS
    for _ in range(20):
        trainer.vector_step()
    assert (trainer.counters.steps, trainer.counters.updates) == (10, 20)
    assert table.waited_s == waited_s


@pytest.mark.parametrize("steps", [0, WARMUP_STEPS])
def test_held_waits_for_actors_and_then_looks_for_orders(steps: int, set_table: Callable[..., Table]) -> None:
    table = set_table()
    push(table.writers[0], steps=steps)
    for _ in range(steps + 2):
        table.trainer.vector_step()
    waited_s, updates = table.waited_s, table.trainer.counters.updates
    assert table.trainer.vector_step() == []
    assert table.waited_s > waited_s
    assert (table.trainer.counters.steps, table.trainer.counters.updates) == (steps * ENVS, updates)


def test_episodes_come_out_as_they_were_played(set_table: Callable[..., Table]) -> None:
    table = set_table(actors=2)
    first = Episode(
        lane=1, total_reward=0.1 + 0.2, length_steps=108_000, reset_seed=2**31 - 1, seed_offset_steps=12_345
    )
    second = Episode(
        lane=0, total_reward=-1e12, length_steps=1, reset_seed=0, seed_offset_steps=0, trace=bytes(range(256))
    )
    third = Episode(lane=1, total_reward=float("inf"), length_steps=2, reset_seed=7, seed_offset_steps=3)
    push(table.writers[0], episodes=[first])
    push(table.writers[1], episodes=[second, third])
    push(table.writers[1], steps=3, episodes=[second])
    assert table.trainer.vector_step() == [first, replace(second, lane=ENVS), replace(third, lane=ENVS + 1)]
    assert [table.trainer.vector_step() for _ in range(4)] == [[], [], [replace(second, lane=ENVS)], []]
    assert table.trainer.counters.episodes == 4
    assert list(table.trainer.scores.recent_returns) == [0.1 + 0.2, -1e12, float("inf"), -1e12]


def test_free_gives_out_the_episodes_of_all_its_takes(set_table: Callable[..., Table]) -> None:
    table = set_table(pacing="free")
    episodes = [Episode(0, float(number), 1, number, 0) for number in range(TAKES_PER_UPDATE)]
    for episode in episodes:
        push(table.writers[0], episodes=[episode])
    assert table.trainer.vector_step() == episodes


def test_in_lockstep_the_weights_stay_as_they_are_until_the_step_is_there(set_table: Callable[..., Table]) -> None:
    # An update every other step: an actor that asked before one which brought none still wants newer weights, but not
    # those that are learnt while it is slow to begin: inline would not have them yet.
    table = set_table(rule=LOCKSTEP, pacing="lockstep", samples_per_step=2.0)
    trainer, writer = table.trainer, table.writers[0]
    trainer.vector_step()  # takes the beginnings
    for _ in range(12):
        trainer.vector_step()  # gives room for the next step, learns what is due, finds no step
        assert writer.may_step
        number = table.weights.number
        trainer.vector_step()
        trainer.vector_step()
        assert table.weights.number == number
        table.weights.ask(ASKING)
        push(writer)
        trainer.vector_step()
    assert trainer.counters.updates > 2


def test_a_source_without_replay_memory_is_refused(set_table: Callable[..., Table]) -> None:
    table = set_table()
    without: Any = SimpleNamespace(source=SimpleNamespace(memory=None))
    with pytest.raises(ValueError, match="need a replay memory"):
        table.trainer.world.finish_step(without)
