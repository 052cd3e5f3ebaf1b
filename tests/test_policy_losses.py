"""Losses on policies: numbers worked by hand."""

import math

import pytest
import torch

from redline.losses import clipped_surrogate, entropy, normalised


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.5, 1.0, -1.2, 0.0),  # more of a good action than allowed: no gain beyond 1 + clip
        (1.5, -1.0, 1.5, 1.0),  # more of a bad action: all of it is taken back
        (0.5, 1.0, -0.5, -1.0),  # less of a good action: all of it is taken back
        (0.5, -1.0, 0.8, 0.0),  # less of a bad action than allowed: no gain beyond 1 − clip
        (1.1, 2.0, -2.2, -2.0),  # within the range nothing is clipped, on either side
        (0.9, -2.0, 1.8, 2.0),
    ],
)
def test_the_clipped_objective_on_every_side(ratio: float, advantage: float, loss: float, slope: float) -> None:
    moved = torch.tensor([ratio], requires_grad=True)
    result = clipped_surrogate(moved, torch.tensor([advantage]), 0.2)
    result.sum().backward()
    assert result.item() == pytest.approx(loss)
    assert moved.grad is not None
    assert moved.grad.item() == pytest.approx(slope)


def test_advantages_are_normalised_over_the_rows_given() -> None:
    # mean 2, standard deviation 1
    assert normalised(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1.0, 0.0, 1.0])
    # mean 6, standard deviation √((16 + 4 + 36) / 2) = √28
    expected = [-4 / math.sqrt(28), -2 / math.sqrt(28), 6 / math.sqrt(28)]
    assert normalised(torch.tensor([2.0, 4.0, 12.0])).tolist() == pytest.approx(expected)


def test_advantages_that_are_all_alike_become_zero_and_a_single_one_stays() -> None:
    assert normalised(torch.full((4,), 3.0)).tolist() == [0.0] * 4
    assert normalised(torch.tensor([3.0])).tolist() == [3.0]


def test_entropy_worked_by_hand() -> None:
    policies = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 1e-30], [1.0, 1e-30, 1e-30, 1e-30]])
    # ln 4; ½ ln 2 + ½ ln 4 = 1½ ln 2; nothing is left open
    expected = [math.log(4), 1.5 * math.log(2), 0.0]
    assert entropy(policies.log()).tolist() == pytest.approx(expected, abs=1e-6)


def test_entropy_of_a_certain_policy_is_a_number() -> None:
    assert entropy(torch.tensor([[1e4, 0.0, -1e4]]).log_softmax(1)).tolist() == [0.0]
