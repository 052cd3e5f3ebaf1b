"""The same job on a CUDA device; needs one."""

from dataclasses import replace
from pathlib import Path

import pytest

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.runtime.config import Job, Limits
from redline.runtime.gauges import Display
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resuming import read_run


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
