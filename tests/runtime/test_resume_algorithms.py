"""Every algorithm stopped midway and resumed ends bit for bit like a whole run."""

from dataclasses import replace
from pathlib import Path

import pytest
from whole_runs import ONE_THREAD, UNWATCHED, final_bytes, play

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.networks.torsos import Small
from redline.replay import ReplayConfig
from redline.replay.sampler import Prioritized
from redline.runtime.config import Job, Limits
from redline.runtime.gauges import Display
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resolve import share_out
from redline.runtime.resuming import read_run

STEPS = 720


def shortened(algorithm: QLearning | OnPolicy) -> QLearning | OnPolicy:
    """Return the algorithm with what makes a short run go through every phase, several times."""
    if isinstance(algorithm, OnPolicy):
        return replace(algorithm, rollout_steps=10, batch_size=20)  # no stop falls on the end of a rollout
    return replace(
        algorithm,
        replay=ReplayConfig(capacity=300, prefetch=2),
        batch_size=32,
        samples_per_step=4.0,
        warmup_steps=100,
        target_sync_updates=20,
    )


CARTPOLE = EnvConfig("CartPole-v1", stack=1, skip=1)
PICTURES = EnvConfig("redline/Catch-v0", size=40, skip=1)
CASES: dict[str, tuple[EnvConfig, QLearning | OnPolicy]] = {
    **{name: (CARTPOLE, shortened(choice.classic.algorithm)) for name, choice in ALGORITHMS.items()},
    "dqn, two updates due at once": (
        CARTPOLE,
        replace(shortened(ALGORITHMS["dqn"].classic.algorithm), samples_per_step=16.0),
    ),
    "a2c, from what acting computed": (
        PICTURES,
        replace(ALGORITHMS["a2c"].atari.algorithm, network=Small(), rollout_steps=10, batch_size=40),
    ),
    "prioritized-dqn, priorities that count late": (
        CARTPOLE,
        replace(shortened(ALGORITHMS["prioritized-dqn"].classic.algorithm), sample=Prioritized(late=True)),
    ),
    "a2c, in bf16": (
        PICTURES,
        replace(ALGORITHMS["a2c"].atari.algorithm, network=Small(), rollout_steps=10, batch_size=40),
    ),
    "rainbow, in bf16": (PICTURES, replace(shortened(ALGORITHMS["rainbow"].atari.algorithm), network=Small())),
}
KEEPS_FEATURES = ("a2c, from what acting computed", "a2c, in bf16")


@pytest.mark.parametrize("case", CASES)
def test_a_run_stopped_midway_and_resumed_ends_bit_for_bit_like_a_whole_one(
    case: str, tmp_path: Path, listener: Display
) -> None:
    name, (env, algorithm) = case.partition(",")[0], CASES[case]
    job = Job(
        monitor=UNWATCHED,
        env=env,
        algorithm=algorithm,
        limits=Limits(max_steps=STEPS),
        num_envs=4,
        log_dir=tmp_path,
        **ONE_THREAD,
    )
    if case.endswith("in bf16"):
        job = replace(job, learner=replace(job.learner, precision="bf16"))
    session = start_run(job, name, listener)
    assert session.trainer.source.keeps_features is (case in KEEPS_FEATURES)
    whole = final_bytes(play(session))
    run = play(start_run(job, name, listener), until_steps=252)
    for stop_at in (508, None):
        saved = read_run(run)
        assert saved.job.algorithm == job.algorithm
        play(resume_run(saved, saved.job, listener), until_steps=stop_at)
    parts = final_bytes(run)
    assert {"weights.safetensors", "optimizer.safetensors", "arrays.safetensors"} <= whole.keys()
    assert whole == parts
    assert not any("not bit-exact" in note for note in listener.notes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["a2c", "ppo", "pqn"])
def test_another_number_of_envs_drops_the_rollout_under_way(name: str, tmp_path: Path, listener: Display) -> None:
    job = Job(
        monitor=UNWATCHED,
        env=EnvConfig("CartPole-v1", stack=1, skip=1),
        algorithm=shortened(ALGORITHMS[name].classic.algorithm),
        limits=Limits(max_steps=400),
        num_envs=4,
        log_dir=tmp_path,
    )
    run = play(start_run(job, name, listener), until_steps=200)
    saved = read_run(run)
    session = resume_run(saved, share_out(replace(saved.job, num_envs=8), ["num-envs"]), listener)
    play(session)
    assert session.trainer.counters.steps == 400
    assert any("4 envs became 8" in note for note in listener.notes)  # type: ignore[attr-defined]
