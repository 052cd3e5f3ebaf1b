"""Parts named on the command line: any sensible combination, and a clear line for those that are not."""

from pathlib import Path

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.noisy_dqn import NOISY_DQN_CLASSIC
from redline.algorithms.named.ppo import PPO
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.predictions import Categorical, Quantiles
from redline.cli.flags import parse_train
from redline.errors import UserError
from redline.networks import Dueling, Gru
from redline.runtime.resolve import resolve_job

CARTPOLE = ("--env", "CartPole-v1")


def test_parts_are_mixed_freely() -> None:
    flags = ["--env", "pong", "--algo", "dqn", "--predict", "quantiles", "--streams", "dueling", "--returns.n", "5"]
    algorithm = parse_train(flags).job.algorithm
    assert (algorithm.predict, algorithm.streams, algorithm.returns.n) == (Quantiles(), Dueling(), 5)  # type: ignore[union-attr]


def test_a_part_starts_as_the_domain_needs_it() -> None:
    algorithm = parse_train([*CARTPOLE, "--algo", "dqn", "--predict", "categorical"]).job.algorithm
    assert algorithm.predict == Categorical(atoms=101, low=-200.0, high=200.0)  # type: ignore[union-attr]
    algorithm = parse_train(["--env", "pong", "--algo", "dqn", "--predict", "categorical"]).job.algorithm
    assert algorithm.predict == Categorical(low=-10.0, high=10.0)  # type: ignore[union-attr]


def test_dqn_with_noisy_parts_is_noisy_dqn() -> None:
    flags = parse_train([*CARTPOLE, "--algo", "dqn", "--layers", "noisy", "--explore", "greedy"])
    assert flags.job.algorithm == NOISY_DQN_CLASSIC


def test_another_optimiser_keeps_the_algorithms_clipping_and_annealing() -> None:
    optimizer = parse_train(["--env", "pong", "--algo", "ppo", "--optimizer", "radam"]).job.algorithm.optimizer
    assert (optimizer.max_norm(), optimizer.annealed_at()) == (0.5, PPO.optimizer.annealed_at())


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--algo ppo --predict quantiles", "ppo has no part predict"),
        ("--algo dqn --objective clipped", "dqn has no part objective"),
        ("--algo dqn --explore greedy", "nothing would explore"),
        ("--algo rainbow --layers plain", "nothing would explore"),
        ("--algo dqn --explore sampled", "not a policy to sample from"),
        ("--algo ppo --layers noisy", "between acting and learning"),
        ("--algo ppo --objective q-lambda", "q-lambda acts by epsilon-greedy: add --explore epsilon-greedy"),
        ("--algo dqn --core lstm", "unknown core 'lstm'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(flags: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        parse_train([*CARTPOLE, *flags.split()])


def test_ppo_can_be_made_into_a_q_learner() -> None:
    flags = parse_train([*CARTPOLE, *["--algo", "ppo", "--objective", "q-lambda", "--explore", "epsilon-greedy"]])
    assert isinstance(flags.job.algorithm, OnPolicy)


def test_flags_and_file_name_parts_together(tmp_path: Path) -> None:
    config = tmp_path / "parts.toml"
    config.write_text('objective = "q-lambda"\n')
    parse_train([*CARTPOLE, "--config", str(config), "--algo", "ppo", "--explore", "epsilon-greedy"])
    config.write_text('[predict]\nname = "categorical"\natoms = 21\n')
    algorithm = parse_train([*CARTPOLE, "--config", str(config)]).job.algorithm
    assert algorithm.predict == Categorical(atoms=21, low=-200.0, high=200.0)  # type: ignore[union-attr]
    algorithm = parse_train([*CARTPOLE, "--config", str(config), "--predict", "expected"]).job.algorithm
    assert algorithm.predict == ALGORITHMS["dqn"].classic.algorithm.predict  # type: ignore[union-attr]


def test_a_batch_of_sequences_holds_whole_ones() -> None:
    flags = parse_train([*CARTPOLE, "--algo", "dqn", "--core", "gru", "--batch-size", "30"])
    assert isinstance(flags.job.algorithm.core, Gru)  # type: ignore[union-attr]
    settled = resolve_job(flags.job)
    assert settled.job.algorithm.batch_size == 24
    assert [str(item) for item in settled.adjustments] == ["batch-size: 30 → 24 (whole sequences of 8 steps)"]


def test_a_learning_rate_that_is_zero_before_the_run_ends_is_said() -> None:
    flags = parse_train([*CARTPOLE, *["--algo", "ppo", "--optimizer.anneal-steps", "1000", "--max-steps", "4000"]])
    (said,) = resolve_job(flags.job).adjustments
    assert str(said).startswith("optimizer.lr: 0.001 → 0 from step 1,000 on")
