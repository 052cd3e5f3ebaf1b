"""Losses on numbers worked by hand."""

import torch

from redline.losses import huber, td_target, weighted_mean


def test_target_adds_the_discounted_value_and_nothing_where_the_return_ends() -> None:
    reward = torch.tensor([1.0, 1.0, -1.0])
    discount = torch.tensor([0.99, 0.0, 0.5])  # goes on, terminated, n-step
    following = torch.tensor([10.0, 10.0, 4.0])
    torch.testing.assert_close(td_target(reward, discount, following), torch.tensor([10.9, 1.0, 1.0]))


def test_huber_is_quadratic_up_to_delta_and_linear_beyond() -> None:
    error = torch.tensor([0.0, 0.5, 1.0, 3.0, -3.0])
    # ½e² up to 1, then |e| − ½
    expected = torch.tensor([0.0, 0.125, 0.5, 2.5, 2.5])
    torch.testing.assert_close(huber(error, torch.zeros(5), 1.0), expected)


def test_a_row_of_weight_zero_still_counts_as_a_row() -> None:
    assert weighted_mean(torch.tensor([2.0, 8.0]), torch.tensor([1.0, 0.0])).item() == 1.0
