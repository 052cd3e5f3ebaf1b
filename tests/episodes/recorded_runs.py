"""Run directories whose episodes were really played, at random, and recorded as a run does it."""

from pathlib import Path

import numpy as np

from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import EpisodesUnderWay
from redline.episodes.episode import EPISODE, Trace, encode_episode, encode_trace
from redline.episodes.setting import SETTING, describe
from redline.episodes.tracing import RecordingConfig, Tracer
from redline.jsonl import RecordWriter, Row
from redline.runs.blocks import BlockWriter

T0 = 1_700_000_000.0  # when they all begin


def play_at_random(
    config: EnvConfig,
    recording: RecordingConfig,
    *,
    episodes: int,
    num_envs: int = 2,
    seed: int = 1,
    seed_interval_steps: int = 10_000,
) -> list[tuple[int, Trace]]:
    """Return the first so many episodes to end that are kept, each with the steps of the run by then."""
    env = make_vector_env(config, num_envs=num_envs, seed=seed, threads=1, seed_interval_steps=seed_interval_steps)
    rng = np.random.default_rng(seed)
    ended: list[tuple[int, Trace]] = []
    steps = 0
    try:
        under_way = EpisodesUnderWay(env)
        tracer = Tracer(env, recording, under_way)
        env.reset()
        under_way.begin(np.ones(num_envs, np.bool_))
        tracer.begin()
        while len(ended) < episodes:
            actions = rng.integers(env.spec.num_actions, size=num_envs)
            values = rng.normal(size=(num_envs, env.spec.num_actions)).astype(np.float32)
            tracer.acted(values if recording.record_values else None)
            env.send(actions)
            step = env.recv()
            steps += num_envs
            under_way.count(step)
            ended += [(steps, trace) for trace in tracer.stepped(step).values()]
            under_way.begin(step.ended)
    finally:
        env.close()
    return ended[:episodes]


def row_of(steps: int, trace: Trace, *, role: str = "actor") -> Row:
    """Return the row that a run writes of an episode."""
    return {
        "time_s": steps / 100,
        "unix_s": T0 + steps / 100,
        "steps": steps,
        "role": role,
        "return": trace.total_reward,
        "length_steps": trace.length_steps,
        "lane": trace.lane,
        "seed": trace.reset_seed,
        "seed_offset_steps": trace.seed_offset_steps,
    }


def write_recorded_run(
    folder: Path,
    played: list[tuple[int, Trace]],
    *,
    env_id: str = "CartPole-v1",
    unrecorded: tuple[int, ...] = (),
    max_episode_frames: int = EnvConfig.max_episode_frames,
) -> Path:
    """Write rows and recordings of episodes; those at the places `unrecorded` have only a row."""
    folder.mkdir(parents=True, exist_ok=True)
    env = make_vector_env(EnvConfig(id=env_id), num_envs=1, seed=0, threads=1)
    env.close()
    with RecordWriter(folder / "episodes.jsonl") as rows, BlockWriter(folder / "recordings" / "episodes.rec") as blocks:
        config = EnvConfig(id=env_id, max_episode_frames=max_episode_frames)
        setting = describe(config, num_actions=env.spec.num_actions, values=None)
        blocks.append(SETTING, 0, setting.encode())
        for place, (steps, trace) in enumerate(played):
            rows.write(row_of(steps, trace))
            if place not in unrecorded:
                append_episode(blocks, steps, trace)
    return folder


def append_episode(blocks: BlockWriter, steps: int, trace: Trace, *, role: str = "actor", **more: object) -> None:
    """Record an episode."""
    payload = encode_episode(encode_trace(trace), role=role, unix_s=T0 + steps / 100, **more)
    blocks.append(EPISODE, steps, payload)
