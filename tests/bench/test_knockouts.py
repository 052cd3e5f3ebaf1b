"""Each variant leaves out exactly what it says, keeps the pace of the real training, and leaves no trace."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from redline.bench.knockouts import VARIANTS, Subject, period_steps, prepare, tapped
from redline.bench.training_speed import recorded
from redline.cli.flags import parse_train
from redline.runtime.building import build_trainer
from redline.runtime.resolve import resolve_job
from redline.runtime.sources import RolloutSource

SMALL = ["--env", "CartPole-v1", "--num-envs", "2", "--monitor.hz", "0"]
REPLAY = ["--warmup-steps", "60", "--batch-size", "16", "--samples-per-step", "16"]
ROLLOUT = ["--rollout-steps", "4", "--batch-size", "4"]
ALGORITHMS = {
    "dqn": REPLAY,
    "rainbow": REPLAY,
    "drqn": REPLAY,
    "ppo": [*ROLLOUT, "--epochs", "2"],
    "a2c": ["--rollout-steps", "4", "--batch-size", "8"],
    "pqn": ROLLOUT,
}


@contextmanager
def subject_of(algorithm: str, folder: Path, *flags: str) -> Iterator[Subject]:
    job = parse_train(["--algo", algorithm, *SMALL, *ALGORITHMS[algorithm], *flags]).job
    with ExitStack() as stack:
        trainer = build_trainer(resolve_job(job), env_seed=1)
        stack.callback(trainer.close)
        training = stack.enter_context(recorded(trainer, folder, algorithm=algorithm, note=pytest.fail))
        yield prepare(training)


@pytest.fixture
def dqn(tmp_path: Path) -> Iterator[Subject]:
    with subject_of("dqn", tmp_path) as subject:
        yield subject


def play(subject: Subject, variant: str, periods: int = 2) -> None:
    with VARIANTS[variant](subject):
        subject.play(periods * subject.period_steps)


def weights(subject: Subject) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(subject.trainer.learner.online.parameters()).detach().clone()


def attributes(subject: Subject) -> list[set[str]]:
    trainer, world = subject.trainer, subject.world
    owners: list[Any] = [trainer.source, trainer.learner, trainer.learner.optimizer, world.env, world.actor]
    owners += [subject.training, *([trainer.source.buffer] if isinstance(trainer.source, RolloutSource) else [])]
    return [set(vars(owner)) for owner in owners]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_variant_keeps_the_pace_and_leaves_the_parts_as_they_were(algorithm: str, tmp_path: Path) -> None:
    with subject_of(algorithm, tmp_path) as subject:
        counters, before, backward = subject.trainer.counters, attributes(subject), torch.autograd.backward
        for name in VARIANTS:
            start = (counters.vector_steps, counters.updates)
            play(subject, name)
            assert counters.vector_steps - start[0] == 2 * subject.period_steps
            assert counters.updates - start[1] == 2 * subject.updates_per_period, name
        assert subject.updates_per_period > 0
        assert attributes(subject) == before
        assert torch.autograd.backward is backward


def test_updates_are_counted_where_no_period_holds_a_whole_number(tmp_path: Path) -> None:
    flags = ["--num-envs", "6", "--batch-size", "512", "--samples-per-step", "1"]
    with subject_of("dqn", tmp_path, *flags) as subject:
        before = subject.trainer.counters.updates
        play(subject, "full", periods=8)
        assert subject.trainer.counters.updates - before == pytest.approx(8 * subject.updates_per_period, abs=1)


def test_a_warmup_that_ends_amid_a_vector_step_makes_no_smaller_groups(tmp_path: Path) -> None:
    with subject_of("dqn", tmp_path, "--num-envs", "16", "--samples-per-step", "4", "--warmup-steps", "56") as subject:
        assert subject.updates_per_period == 4
        assert subject.recorded.group == 4


def test_what_is_played_without_acting_is_learnt_from_in_the_same_turn(tmp_path: Path) -> None:
    """A2C learns from what acting computed: none of it may be left over for a turn of another variant."""
    with subject_of("a2c", tmp_path) as subject:
        has_features: list[bool] = []
        assert subject.trainer.source.keeps_features
        with tapped(subject.trainer.learner, "update", lambda args, _: has_features.append(bool(args[0].features))):
            play(subject, "no_acting")
            play(subject, "full")
        assert has_features == [False, False, True, True]


def test_the_same_batch_again_and_again_is_not_drawn(dqn: Subject) -> None:
    drawn = dqn.trainer.counters.batches_drawn
    play(dqn, "constant_batch")
    assert dqn.trainer.counters.batches_drawn == drawn
    play(dqn, "full")
    assert dqn.trainer.counters.batches_drawn > drawn


def test_without_the_optimiser_gradients_come_and_weights_stay(dqn: Subject) -> None:
    before = weights(dqn)
    dqn.trainer.learner.optimizer.zero_grad()
    play(dqn, "no_optimiser")
    assert torch.equal(weights(dqn), before)
    assert all(parameter.grad is not None for parameter in dqn.trainer.learner.online.parameters())
    play(dqn, "full")
    assert not torch.equal(weights(dqn), before)


def test_without_the_backward_pass_losses_come_and_no_gradients(dqn: Subject) -> None:
    learner, before = dqn.trainer.learner, weights(dqn)
    learner.take_mean_loss()
    play(dqn, "no_backward")
    assert learner.take_mean_loss() is not None
    assert torch.equal(weights(dqn), before)
    assert all(parameter.grad is None for parameter in learner.online.parameters())


@pytest.mark.parametrize(("variant", "is_asked"), [("no_loss", False), ("no_backward", True)])
def test_without_loss_no_network_is_asked_for_learning(dqn: Subject, variant: str, is_asked: bool) -> None:
    asked: list[str] = []
    learner = dqn.trainer.learner
    learner.target.register_forward_hook(lambda *_: asked.append("target"))
    learner.online.register_forward_hook(lambda *_: asked.append("online"))
    drawn = dqn.trainer.counters.batches_drawn
    with VARIANTS["no_acting"](dqn):
        play(dqn, variant)
    assert bool(asked) == is_asked
    assert dqn.trainer.counters.batches_drawn > drawn


def test_without_acting_no_network_is_asked_for_actions(dqn: Subject) -> None:
    asked: list[str] = []
    dqn.trainer.learner.online.torso.register_forward_hook(lambda *_: asked.append("torso"))
    with VARIANTS["no_loss"](dqn):
        play(dqn, "no_acting")
        assert not asked
        play(dqn, "full")
        assert asked


def test_without_envs_nothing_is_stepped_and_recorded_steps_come_back(dqn: Subject) -> None:
    env = dqn.world.env
    key, steps = env.reset_seed.copy(), env.steps_since_seed.copy()
    memory = dqn.trainer.source.memory
    assert memory is not None
    kept = memory.num_transitions
    play(dqn, "no_env")
    assert (env.reset_seed == key).all()
    assert (env.steps_since_seed == steps).all()
    assert memory.num_transitions > kept


def test_without_records_no_row_is_written(dqn: Subject, tmp_path: Path) -> None:
    rows = next(tmp_path.rglob("episodes.jsonl"))
    before = rows.read_text(encoding="utf-8")
    play(dqn, "no_records", periods=60)
    assert rows.read_text(encoding="utf-8") == before
    play(dqn, "full", periods=60)
    assert rows.read_text(encoding="utf-8") != before


@pytest.mark.parametrize(
    ("flags", "period"),
    [
        (["--num-envs", "8", "--batch-size", "32", "--samples-per-step", "8"], 1),
        (["--num-envs", "8", "--batch-size", "128", "--samples-per-step", "8"], 2),
        (["--num-envs", "2", "--batch-size", "32", "--samples-per-step", "0.5"], 32),
        (["--num-envs", "1", "--batch-size", "512", "--samples-per-step", "0.25"], 2048),
        (["--num-envs", "1", "--batch-size", "32", "--samples-per-step", "0.3"], 107),  # 3 / 320 a step
        (["--num-envs", "6", "--batch-size", "512", "--samples-per-step", "1"], 86),  # 3 / 256
        (["--algo", "ppo", "--rollout-steps", "16"], 16),
    ],
)
def test_after_a_period_as_many_updates_are_due_again(flags: list[str], period: int) -> None:
    assert period_steps(parse_train(["--env", "CartPole-v1", *flags]).job) == period
