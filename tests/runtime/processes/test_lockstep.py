"""One actor in lockstep gives the same result as inline, bit for bit.

Not compared is what a topology has alone: a checkpoint of inline also says where the envs and the actor are, and in
whose seed they began.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from whole_runs import ONE_THREAD, UNWATCHED

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.optimizers import Adam
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy, Greedy
from redline.jsonl import read_records
from redline.networks import Mlp, Small
from redline.replay import ReplayConfig
from redline.runtime.config import EvaluatorConfig, Job, LearnerConfig, Limits
from redline.runtime.gauges import Display
from redline.runtime.launch import AnySession, start_run
from redline.runtime.processes.supervisor import AsyncSession
from redline.schedules import Linear

ALMOST_GREEDY = EpsilonGreedy(Linear(0.2, 0.0, over_steps=300))
OF_TIME = {"time_s", "unix_s", "warmup_time_s", "elapsed_s", "evaluation_s", "evaluated_at_s"}
OF_THE_ACTOR = ("actor.", "env.")  # parts of a checkpoint


def vectors(name: str, **replay: Any) -> Job:
    """Return a short job on CartPole, in which little is random and each update turns many actions.

    The memory is small, so that rows are evicted; episodes are short, and many are cut.
    """
    algorithm = ALGORITHMS[name].classic.algorithm
    assert isinstance(algorithm, QLearning)
    algorithm = replace(
        algorithm,
        explore=algorithm.explore if isinstance(algorithm.explore, Greedy) else ALMOST_GREEDY,
        optimizer=Adam(lr=0.02),
        replay=ReplayConfig(capacity=300, **replay),
        batch_size=32,
        samples_per_step=8.0,
        warmup_steps=100,
        target_sync_updates=20,
    )
    env = EnvConfig("CartPole-v1", stack=1, skip=1, max_episode_frames=15)
    return Job(monitor=UNWATCHED, env=env, algorithm=algorithm, num_envs=4, limits=Limits(max_steps=600))


def pictures(name: str, env: str, **replay: Any) -> Job:
    """Return a short job on a game of pixels."""
    job = vectors(name)
    algorithm = ALGORITHMS[name].atari.algorithm
    assert isinstance(algorithm, QLearning)
    algorithm = replace(
        algorithm,
        network=Small(),
        explore=algorithm.explore if isinstance(algorithm.explore, Greedy) else ALMOST_GREEDY,
        optimizer=Adam(lr=0.003),
        replay=ReplayConfig(capacity=160, bytes=4_000_000, **replay),
        warmup_steps=100,
        target_sync_updates=20,
    )
    # episodes of 50 steps at most
    game = EnvConfig(env, size=40, max_episode_frames=200)
    return replace(job, env=game, algorithm=algorithm, num_envs=2, limits=Limits(max_steps=240))


JOBS: dict[str, Callable[[], Job]] = {
    "dqn": lambda: vectors("dqn", prefetch=0),
    "dqn, drawn ahead": lambda: vectors("dqn", prefetch=3),
    "noisy-dqn": lambda: vectors("noisy-dqn", prefetch=0),
    "rainbow": lambda: vectors("rainbow", prefetch=2),
    "drqn": lambda: vectors("drqn", prefetch=2),
    "catch": lambda: pictures("dqn", "redline/Catch-v0", prefetch=1),
    "catch, in bf16": lambda: replace(
        pictures("dqn", "redline/Catch-v0", prefetch=1), learner=LearnerConfig(precision="bf16")
    ),
}
MORE_JOBS: dict[str, Callable[[], Job]] = {
    "one env": lambda: replace(vectors("dqn", prefetch=1), num_envs=1),
    "prioritized-dqn": lambda: vectors("prioritized-dqn", prefetch=0),
    "catch, drqn": lambda: pictures("drqn", "redline/Catch-v0", prefetch=0),
    "pong, rainbow": lambda: pictures("rainbow", "ALE/Pong-v5", prefetch=0),
    "breakout": lambda: pictures("dqn", "ALE/Breakout-v5", prefetch=3),
    "pong, qr-dqn": lambda: pictures("qr-dqn", "ALE/Pong-v5", prefetch=2),
}


def train(job: Job, listener: Display, requested_stop: Callable[[AnySession], None] = lambda _: None) -> Path:
    """Train to the end; return the run's folder."""
    with start_run(job, "test", listener) as session:
        session.train(lambda: requested_stop(session))
        return session.run.path


def result_of(run: Path) -> dict[str, Any]:
    """Return all that a run leaves, but the time that it took."""
    folder = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    state = json.loads((folder / "state.json").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    arrays = load_file(folder / "arrays.safetensors")
    return {
        **{name: (folder / f"{name}.safetensors").read_bytes() for name in ("weights", "target", "optimizer")},
        **{key: rows.tobytes() for key, rows in arrays.items() if not key.startswith(OF_THE_ACTOR)},
        "replay": manifest["replay"],
        "segments": [path.read_bytes() for path in sorted((run / "replay").iterdir())],
        "counters": {key: value for key, value in state["counters"].items() if key not in OF_TIME},
        "returns": (state["recent_returns"], state["best_return"], manifest["score"]),
        "episodes": [
            {key: value for key, value in row.items() if key not in OF_TIME}
            for row in read_records(run / "episodes.jsonl")
        ],
    }


def as_inline(job: Job, log_dir: Path) -> Job:
    learner = replace(ONE_THREAD["learner"], precision=job.learner.precision)
    return replace(job, log_dir=log_dir, **ONE_THREAD | {"learner": learner})


def as_lockstep(job: Job, log_dir: Path) -> Job:
    evaluator = EvaluatorConfig(every_minutes=0.0)
    return replace(as_inline(job, log_dir), topology="async", pacing="lockstep", evaluator=evaluator)


def check_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert [key for key in one if one[key] != other[key]] == []


def check_lockstep(job: Job, log_dir: Path, listener: Display) -> None:
    inline = result_of(train(as_inline(job, log_dir), listener))
    lockstep = result_of(train(as_lockstep(job, log_dir), listener))
    check_same(inline, lockstep)
    assert len(inline["episodes"]) > 3
    assert inline["counters"]["updates"] > 15


@pytest.mark.parametrize("name", JOBS)
def test_one_actor_in_lockstep_gives_what_inline_gives(name: str, tmp_path: Path, listener: Display) -> None:
    check_lockstep(JOBS[name](), tmp_path, listener)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_JOBS)
def test_one_actor_in_lockstep_gives_what_inline_gives_for_more_jobs(
    name: str, tmp_path: Path, listener: Display
) -> None:
    check_lockstep(MORE_JOBS[name](), tmp_path, listener)


@pytest.mark.slow
def test_an_actor_that_is_slow_at_times_makes_no_difference(tmp_path: Path, listener: Display) -> None:
    # every action follows from the weights, and each of the updates, one for two steps, turns many actions
    job = vectors("dqn", prefetch=0)
    algorithm = replace(
        job.algorithm,
        network=Mlp(widths=(16,)),
        explore=EpsilonGreedy(Linear(0.0, 0.0, over_steps=1)),
        optimizer=Adam(lr=0.1),
        batch_size=16,
    )
    job = replace(job, algorithm=algorithm, num_envs=1, limits=Limits(max_steps=8_000))
    stops = 0

    def stop_actor_for_a_while(session: AnySession) -> None:
        nonlocal stops
        assert isinstance(session, AsyncSession)
        if stops < 40 and session._parts.status.run_updates:
            stops += 1
            pid = session._pool.members["actor-0"].pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.25)  # longer than the learner waits before it looks for orders
            os.kill(pid, signal.SIGCONT)

    inline = result_of(train(as_inline(job, tmp_path), listener))
    lockstep = result_of(train(as_lockstep(job, tmp_path), listener, stop_actor_for_a_while))
    assert stops > 10
    check_same(inline, lockstep)
