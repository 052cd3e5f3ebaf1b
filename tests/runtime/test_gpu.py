"""The same job on a CUDA device; needs one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.learner import Learner
from redline.networks import Small
from redline.runtime.carrier import to_device
from redline.runtime.config import Job, Limits
from redline.runtime.example_batches import example_batch
from redline.runtime.gauges import Display
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resuming import read_run
from redline.types import EnvSpec


@pytest.mark.gpu
def test_a_run_on_a_gpu_learns_stops_and_goes_on(tmp_path: Path, listener: Display) -> None:
    algorithm = replace(DQN_CLASSIC, warmup_steps=200)
    env = EnvConfig("CartPole-v1", stack=1, skip=1)
    job = Job(env=env, algorithm=algorithm, log_dir=tmp_path, device="cuda", limits=Limits(max_steps=1_000))
    with start_run(job, "dqn", listener) as session:
        session.train(lambda: None)
    saved = read_run(session.run.path)
    with resume_run(saved, replace(saved.job, limits=Limits(max_steps=2_000)), listener) as resumed:
        resumed.train(lambda: None)
    assert resumed.trainer.counters.updates > session.trainer.counters.updates
    assert resumed.trainer.learner.non_finite_weights() == []
    assert any("not bit-exact" in note for note in listener.notes)  # type: ignore[attr-defined]


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(name for name in ALGORITHMS if ALGORITHMS[name].atari.algorithm.replay))
def test_updates_from_a_graph_are_those_done_one_by_one_and_wait_for_nothing(name: str) -> None:
    algorithm = replace(ALGORITHMS[name].atari.algorithm, network=Small(width=16))
    spec, device = EnvSpec("test", (42, 42), "uint8", 4, 3, 4), torch.device("cuda")
    learners = [Learner(algorithm, spec, seed=1, device=device, captures=captures) for captures in (False, True)]
    batches = [to_device(example_batch(algorithm, spec, np.random.default_rng(seed)), device) for seed in range(8)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for learner in learners:
            for update, batch in enumerate(batches):
                learner.update(batch, steps=update, rng=np.random.default_rng(update))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    plain, captured = (learner.state()["weights"] for learner in learners)
    for key, value in plain.items():
        torch.testing.assert_close(captured[key], value, msg=key)
