"""Optimisers: what they do with a gradient, how it is clipped, and how the learning rate falls."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from redline.algorithms.named.dqn import DQN
from redline.algorithms.optimizers import Adam, Optimizer, Radam, Rmsprop
from redline.errors import UserError
from redline.learner import Learner
from redline.networks import Mlp
from redline.types import Batch, EnvSpec

SPEC = EnvSpec("test", (3,), "float32", stack=1, num_actions=3, frames_per_step=1)
ALL = [Adam, Rmsprop, Radam]


def batch() -> Batch:
    rng = torch.Generator().manual_seed(0)
    return Batch(
        frames=torch.randn(8, 2, 3, generator=rng),
        offset=torch.ones(8, dtype=torch.int64),
        action=torch.randint(0, 3, (8,), generator=rng),
        reward=torch.full((8,), 50.0),
        discount=torch.full((8,), 0.99),
        weight=torch.full((8,), 10.0),
    )


def change(optimizer: Optimizer, *, steps: int = 0) -> torch.Tensor:
    """Return by how much one update after `steps` steps moves all weights, as one vector."""
    algorithm = replace(DQN, network=Mlp((16,)), optimizer=optimizer)
    learner = Learner(algorithm, SPEC, seed=1, device=torch.device("cpu"))
    before = torch.nn.utils.parameters_to_vector(learner.online.parameters()).detach().clone()
    learner.update(batch(), steps=steps, rng=np.random.default_rng(0))
    return torch.nn.utils.parameters_to_vector(learner.online.parameters()).detach() - before


def plain_gradient(**changes: Any) -> Adam:
    """Return a recipe whose first step is the gradient itself: the denominator is all ε."""
    return Adam(lr=1e6, eps=1e6, **changes)


def test_a_gradient_beyond_the_norm_is_scaled_down_and_keeps_its_direction() -> None:
    free, clipped = change(plain_gradient()), change(plain_gradient(clip_norm=0.5))
    assert free.norm().item() > 2.0
    assert clipped.norm().item() == pytest.approx(0.5, rel=1e-3)
    torch.testing.assert_close(clipped / clipped.norm(), free / free.norm(), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", ALL)
def test_options_are_given_by_name(kind: Callable[..., Optimizer]) -> None:
    with pytest.raises(TypeError, match="positional"):
        kind(1e-3)


def test_a_gradient_within_the_norm_stays() -> None:
    torch.testing.assert_close(change(plain_gradient(clip_norm=1e4)), change(plain_gradient()))


def test_the_first_step_of_rmsprop_worked_by_hand() -> None:
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = Rmsprop(lr=0.1, eps=1.0, decay=0.75).build([parameter])
    parameter.grad = torch.tensor([2.0, -4.0])
    optimizer.step()
    # mean squares ¼ · 4 and ¼ · 16: steps 0.1 · 2 / (1 + 1) and 0.1 · −4 / (2 + 1)
    assert parameter.tolist() == pytest.approx([1 - 0.1, -2 + 0.4 / 3])


@pytest.mark.parametrize(
    ("recipe", "plain"),
    [
        (Rmsprop(), torch.optim.RMSprop([torch.zeros(1)], lr=7e-4, eps=1e-5)),
        (Radam(), torch.optim.RAdam([torch.zeros(1)], lr=2.5e-4, eps=1e-8)),
    ],
)
def test_fused_or_not_the_weights_go_the_same_way(recipe: Optimizer, plain: torch.optim.Optimizer) -> None:
    own, other = (torch.nn.Parameter(torch.linspace(-1.0, 1.0, 64)) for _ in range(2))
    optimizer = recipe.build([own])
    plain.param_groups[0]["params"] = [other]
    rng = torch.Generator().manual_seed(0)
    for update in range(30):
        own.grad = torch.randn(64, generator=rng) * 10.0 ** (update % 5 - 3)
        other.grad = own.grad.clone()
        optimizer.step()
        plain.step()
    assert not torch.allclose(own, torch.linspace(-1.0, 1.0, 64), atol=1e-3)
    torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_the_learning_rate_falls_to_zero_over_the_steps_asked_for(kind: Any) -> None:
    recipe = kind(lr=0.5, anneal_steps=100)
    assert [recipe.lr_at(steps) for steps in (0, 25, 50, 100, 1_000)] == [0.5, 0.375, 0.25, 0.0, 0.0]
    assert kind(lr=0.5).lr_at(10**9) == 0.5
    recipe = kind(lr=0.5, anneal_steps=100, final_share=0.5)
    assert [recipe.lr_at(steps) for steps in (0, 50, 100, 1_000)] == [0.5, 0.375, 0.25, 0.25]
    recipe = kind(lr=0.5, anneal_steps=100, anneal_after_steps=200)
    assert [recipe.lr_at(steps) for steps in (0, 200, 250, 300)] == [0.5, 0.5, 0.25, 0.0]
    assert (recipe.annealed_from(), kind(anneal_after_steps=200).annealed_from()) == (200, 0)
    assert (recipe.annealed_at(), kind(anneal_after_steps=200).annealed_at()) == (300, 0)


@pytest.mark.parametrize("kind", ALL)
def test_the_learner_takes_the_rate_of_its_step(kind: Any) -> None:
    recipe = kind(lr=0.01, anneal_steps=1_000)
    start, halfway = change(recipe), change(recipe, steps=500)
    torch.testing.assert_close(halfway, start / 2, atol=1e-6, rtol=1e-2)
    assert (change(recipe, steps=1_000) == 0.0).all()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lr": 0.0}, r"optimizer\.lr is 0\.0"),
        ({"eps": float("inf")}, r"optimizer\.eps is inf"),
        ({"clip_norm": -1.0}, r"optimizer\.clip-norm is -1\.0"),
        ({"anneal_steps": -1}, r"optimizer\.anneal-steps is -1"),
        ({"anneal_after_steps": -1}, r"optimizer\.anneal-after-steps is -1"),
        ({"final_share": 2.0}, r"optimizer\.final-share is 2\.0"),
    ],
)
def test_impossible_settings_are_refused(kind: Any, setting: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        kind(**setting)


def test_rmsprop_keeps_less_than_all() -> None:
    with pytest.raises(UserError, match=r"optimizer\.decay is 1\.0"):
        Rmsprop(decay=1.0)
