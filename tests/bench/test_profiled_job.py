"""What is profiled is the job that was asked for, in one process and with a short warm-up, and each change is said."""

import pytest

from redline.bench.profiling import profiled_job
from redline.cli.flags import parse_train
from redline.errors import UserError
from redline.runtime.resolve import check_topology


def test_a_job_as_it_is_stays_as_it_is() -> None:
    job = parse_train(["--warmup-steps", "5000"]).job
    assert profiled_job(job) == (job, [])


def test_a_long_warmup_is_cut_and_that_is_said() -> None:
    job, adjustments = profiled_job(parse_train(["--algo", "rainbow"]).job)
    assert job.algorithm.warmup_steps == 5_000
    assert [str(item).split(" (")[0] for item in adjustments] == ["warmup-steps: 20,000 → 5,000"]


def test_other_topologies_become_one_process_and_that_is_said() -> None:
    flags = ["--topology", "async", "--actors", "2", "--push", "chunk", "--warmup-steps", "100"]
    job, adjustments = profiled_job(parse_train(flags).job)
    check_topology(job)
    said = [str(item).split(" (")[0] for item in adjustments]
    assert said == ["topology: async → inline", "actors: 2 → 1", "push: chunk → step"]
    assert (job.topology, job.num_envs) == ("inline", 8)


def test_what_training_refuses_is_refused() -> None:
    with pytest.raises(UserError, match="use --topology inline"):
        profiled_job(parse_train(["--algo", "ppo", "--topology", "async"]).job)
