"""How many bytes the recordings of a run take: computed for a typical episode, or measured by playing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import EpisodesUnderWay, VectorEnv
from redline.episodes.episode import (
    EPISODE,
    Trace,
    encode_episode,
    encode_trace,
    num_checks,
)
from redline.episodes.tracing import RecordingConfig, Tracer
from redline.runs.blocks import encode_block
from redline.types import Progress
from redline.units import size

USUAL_LENGTH_STEPS = 500  # an episode of random play: 190 of Breakout, 900 of Pong
SHORT_LENGTH_STEPS = 25  # the same for envs without pictures, such as CartPole
LONGEST_EXAMPLE_STEPS = 20_000  # a longer episode takes in proportion
RECORDS_BROKEN = 200  # by an agent that learns, about: Pong has 42 returns above its lowest, Breakout some hundreds
PATIENCE = 4.0  # × the requested seconds, in which every lane must end an episode


def estimate_bytes(*, steps: int, num_actions: int, mean_length_steps: float, values: bool, record: str) -> int:
    """Return about how many bytes a run with a random agent records.

    Nothing compresses worse than random actions: other agents take no more for episodes of equal length.
    """
    config = RecordingConfig(record=record, record_values=values)
    if config.is_off or steps <= 0:
        return 0
    length_steps = min(max(mean_length_steps, 1.0), float(steps))
    num_episodes = steps / length_steps
    if record == "all":
        return ceil(num_episodes * _episode_bytes(length_steps, length_steps, num_actions, values=values))
    every = num_episodes / min(num_episodes, RECORDS_BROKEN) if record == "best" else float(record)
    # a record holds the actions since the record before or the seeded reset: on average half an interval
    since_key_steps = length_steps + (SEED_INTERVAL_STEPS + length_steps) / 2
    actions_steps = min(every * length_steps, since_key_steps)
    each_bytes = _episode_bytes(length_steps, actions_steps, num_actions, values=values)
    return ceil(num_episodes / every * each_bytes)


def describe_estimate(num_bytes: int, *, steps: int, record: str, values: bool) -> str:
    """Return one line on what a run will record and its size."""
    if record == "off":
        return "no episode is recorded: --record all keeps every one"
    usual = {
        "all": "every episode is recorded",
        "1": "every episode is recorded",
        "best": "every episode that beats all earlier ones is recorded",
    }
    kept = usual.get(record, f"one episode in {record} is recorded")
    what = "with the agent's values, " if values else ""
    return f"{kept}, {what}about {size(num_bytes, digits=1)} for {steps:,} steps"


def _episode_bytes(length_steps: float, actions_steps: float, num_actions: int, *, values: bool) -> float:
    """Return the bytes of an episode of random play, by encoding an example of its size."""
    scale = max(1.0, actions_steps / LONGEST_EXAMPLE_STEPS, length_steps / LONGEST_EXAMPLE_STEPS)
    length, actions = max(1, round(length_steps / scale)), max(1, round(actions_steps / scale))
    rng = np.random.default_rng(0)
    example = Trace(
        lane=7,
        reset_seed=2**30,
        seed_offset_steps=5_000,
        length_steps=length,
        total_reward=-21.0,
        is_truncated=False,
        actions_from=5_000 + length - actions,
        actions=rng.integers(num_actions, size=actions),
        checks_from=0,
        checks=rng.integers(2**32, size=(num_checks(length), 2), dtype=np.uint32),
        values=rng.normal(size=(length, num_actions)).astype(np.float16) if values else None,
    )
    return scale * recorded_bytes(example)


def recorded_bytes(trace: Trace, *, steps: int = 10_000_000) -> int:
    """Return the bytes of an episode in a run's file."""
    payload = encode_episode(encode_trace(trace), role="actor", unix_s=1_794_816_032.557_905_2)
    return len(encode_block(EPISODE, steps, payload))


@dataclass(frozen=True)
class MeasuredRecordings:
    """The measured size of episodes of random play."""

    num_steps: int  # of ended episodes
    num_episodes: int
    recorded_bytes: int
    is_measured: bool  # False: no episode ended in time, so an example was encoded

    @property
    def mean_length_steps(self) -> float:
        """Steps of an episode."""
        return self.num_steps / self.num_episodes

    @property
    def bytes_per_episode(self) -> float:
        """Recorded bytes of an episode."""
        return self.recorded_bytes / self.num_episodes

    @property
    def bytes_per_step(self) -> float:
        """The same per step."""
        return self.recorded_bytes / self.num_steps


def measure_recordings(
    env: EnvConfig,
    *,
    values: bool,
    seconds: float,
    seed: int,
    num_envs: int,
    threads: int,
    progress: Progress = lambda _: None,
) -> MeasuredRecordings:
    """Play at random for `seconds` and until every lane has ended an episode; measure every ended episode.

    Stopping earlier would measure only short ones. With `values`, random values are recorded as well.
    """
    vector = make_vector_env(env, num_envs=num_envs, seed=seed, threads=threads)
    steps_played = num_steps = num_episodes = num_bytes = 0
    try:
        config = RecordingConfig(record="all", record_values=values)
        for traces in _play_at_random(vector, config, seconds=seconds, seed=seed, progress=progress):
            steps_played += num_envs
            num_steps += sum(trace.length_steps for trace in traces)
            num_episodes += len(traces)
            num_bytes += sum(recorded_bytes(trace) for trace in traces)
    finally:
        vector.close()
    if num_episodes:
        return MeasuredRecordings(num_steps, num_episodes, num_bytes, is_measured=True)
    length = max(1, steps_played // num_envs)
    each = _episode_bytes(length, length, vector.spec.num_actions, values=values)
    return MeasuredRecordings(length, 1, ceil(each), is_measured=False)


def _play_at_random(
    env: VectorEnv, recording: RecordingConfig, *, seconds: float, seed: int, progress: Progress
) -> Iterator[Collection[Trace]]:
    """Yield the episodes that end with each step."""
    rng, lanes_ended = np.random.default_rng(seed), np.zeros(env.num_envs, np.bool_)
    under_way = EpisodesUnderWay(env)
    tracer = Tracer(env, recording, under_way)
    env.reset()
    under_way.begin(~lanes_ended)
    tracer.begin()
    begun_s = time.monotonic()
    while (share := (time.monotonic() - begun_s) / seconds) < 1.0 or not (lanes_ended.all() or share >= PATIENCE):
        actions = rng.integers(env.spec.num_actions, size=env.num_envs)
        shape = (env.num_envs, env.spec.num_actions)
        tracer.acted(rng.normal(size=shape).astype(np.float32) if recording.record_values else None)
        env.send(actions)
        step = env.recv()
        lanes_ended |= step.ended
        under_way.count(step)
        yield tracer.stepped(step).values()
        under_way.begin(step.ended)
        progress(min(share, 1.0))
