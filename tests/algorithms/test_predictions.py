"""What is predicted, how it is compared, and at which action the next state is read: numbers worked by hand."""

import math

import pytest
import torch

from redline.algorithms.predictions import Categorical, Expected, OnlineChooses, Quantiles, TargetChooses
from redline.errors import UserError

# expected values of two rows, two actions each
ONLINE = torch.tensor([[[1.0], [5.0]], [[7.0], [2.0]]])  # prefers actions 1 and 0
TARGET = torch.tensor([[[10.0], [3.0]], [[4.0], [6.0]]])  # prefers actions 0 and 1


def test_the_target_network_values_its_own_choice() -> None:
    following = TargetChooses().following(online=lambda: ONLINE, target=lambda: TARGET, predict=Expected())
    assert following.tolist() == [[10.0], [6.0]]


def test_double_q_values_what_the_online_network_chose() -> None:
    following = OnlineChooses().following(online=lambda: ONLINE, target=lambda: TARGET, predict=Expected())
    assert following.tolist() == [[3.0], [4.0]]


def test_a_network_that_is_not_needed_is_not_asked() -> None:
    def never() -> torch.Tensor:
        raise AssertionError("asked")

    TargetChooses().following(online=never, target=lambda: TARGET, predict=Expected())


@pytest.mark.parametrize("bootstrap", [TargetChooses(), OnlineChooses()])
def test_of_a_distribution_the_mean_chooses_and_the_whole_is_returned(bootstrap: OnlineChooses) -> None:
    # atoms −1 0 1: the first action has the highest single probability, the second the higher mean
    out = torch.tensor([[[0.1, 0.8, 0.1], [0.4, 0.0001, 0.6]]]).log()
    following = bootstrap.following(online=lambda: out, target=lambda: out, predict=Categorical(3, -1.0, 1.0))
    torch.testing.assert_close(following, out[:, 1])


def test_categorical_values_are_means_over_the_atoms() -> None:
    out = torch.tensor([[[0.2, 0.3, 0.5], [0.5, 0.5, 1e-9]]]).log() + 7.0  # logits have no zero of their own
    # atoms −1 0 1: 0.5 − 0.2, and −0.5
    assert Categorical(3, -1.0, 1.0).values(out)[0].tolist() == pytest.approx([0.3, -0.5], abs=1e-6)


def test_categorical_loss_is_the_cross_entropy_and_its_priority_the_divergence() -> None:
    losses, priorities = Categorical(2, 0.0, 1.0).losses(
        predicted=torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log(),
        following=torch.zeros(2, 2),  # ½ and ½ on the atoms 0 and 1
        reward=torch.zeros(2),
        discount=torch.ones(2),
    )
    # −½ ln ¼ − ½ ln ¾, and ln 2; less the target's own entropy, ln 2
    first = -0.5 * math.log(0.25) - 0.5 * math.log(0.75)
    assert losses.tolist() == pytest.approx([first, math.log(2)])
    assert priorities.tolist() == pytest.approx([first - math.log(2), 0.0], abs=1e-6)


def test_categorical_loss_shifts_and_shrinks_what_follows() -> None:
    losses, _ = Categorical(3, 0.0, 2.0).losses(
        predicted=torch.tensor([[0.2, 0.3, 0.5]]).log(),
        following=torch.tensor([[0.5, 0.3, 0.2]]).log(),
        reward=torch.tensor([0.5]),
        discount=torch.tensor([0.5]),
    )
    # atoms 0 1 2 move to ½ 1 1½, so the target is 0.25, 0.65, 0.1
    expected = -0.25 * math.log(0.2) - 0.65 * math.log(0.3) - 0.1 * math.log(0.5)
    assert losses.tolist() == pytest.approx([expected])


def test_quantile_values_are_means() -> None:
    assert Quantiles(2).values(torch.tensor([[[1.0, 3.0], [0.0, 1.0]]])).tolist() == [[2.0, 0.5]]


def test_quantile_loss_discounts_what_follows_and_nothing_follows_an_end() -> None:
    losses, priorities = Quantiles(2).losses(
        predicted=torch.tensor([[0.0, 2.0], [0.0, 2.0]]),
        following=torch.tensor([[1.0, 4.0], [1.0, 4.0]]),
        reward=torch.tensor([1.0, 1.0]),
        discount=torch.tensor([0.5, 0.0]),
    )
    # targets 1½ and 3: errors 1½, 3 (Huber 1, 2½, weights ¼) and −½, 1 (Huber ⅛, ½, weights ¼, ¾)
    goes_on = (0.25 * 1 + 0.25 * 2.5) / 2 + (0.25 * 0.125 + 0.75 * 0.5) / 2
    # the target is 1: errors 1 and −1, each Huber ½, weights ¼ and 1 − ¾
    ended = 0.25 * 0.5 + 0.25 * 0.5
    assert losses.tolist() == pytest.approx([goes_on, ended])
    assert priorities.tolist() == losses.tolist()


@pytest.mark.parametrize("predict", [Expected(), Categorical(3, -1.0, 1.0), Quantiles(4)])
def test_losses_reach_what_was_predicted_and_priorities_carry_no_gradient(predict: Expected) -> None:
    count = predict.num_outputs()
    predicted = torch.randn(5, count, requires_grad=True)
    losses, priorities = predict.losses(predicted, torch.randn(5, count), torch.randn(5), torch.full((5,), 0.9))
    assert losses.shape == priorities.shape == (5,)
    assert not priorities.requires_grad
    assert (priorities >= 0.0).all()
    losses.sum().backward()
    assert predicted.grad is not None
    assert (predicted.grad.abs().sum(1) > 0.0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Expected(huber_delta=0.0), "huber-delta is 0.0"),
        (lambda: Categorical(atoms=1), "predict.atoms is 1"),
        (lambda: Categorical(low=1.0, high=1.0), "low < high"),
        (lambda: Quantiles(quantiles=0), "predict.quantiles is 0"),
        (lambda: Quantiles(kappa=float("nan")), "predict.kappa is nan"),
    ],
)
def test_impossible_predictions_are_refused(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]
