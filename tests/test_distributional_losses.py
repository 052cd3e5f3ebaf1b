"""Losses between distributions of returns: numbers worked by hand, and plain loops."""

import math

import pytest
import torch

from redline.losses import project_atoms, quantile_huber


def project_naively(
    probabilities: list[float], reward: float, discount: float, *, low: float, high: float
) -> list[float]:
    """Give each atom what falls nearer to it than the distance between two atoms, in proportion to the nearness."""
    count = len(probabilities)
    gap = (high - low) / (count - 1)
    atoms = [low + gap * i for i in range(count)]
    projected = [0.0] * count
    for probability, atom in zip(probabilities, atoms, strict=True):
        place = min(max(reward + discount * atom, low), high)
        for i in range(count):
            projected[i] += probability * max(0.0, 1.0 - abs(place - atoms[i]) / gap)
    return projected


@pytest.mark.parametrize(
    ("probabilities", "low", "reward", "discount", "expected"),
    [
        # atoms 0 1 2 move to ½ 1 1½: the first and the last are halved, the middle one meets an atom exactly
        ([0.5, 0.3, 0.2], 0.0, 0.5, 0.5, [0.25, 0.25 + 0.3 + 0.1, 0.1]),
        # atoms −2 … 2 move to −1 0 1 2 3: all exactly on atoms, and 3 is clipped to 2
        ([0.1, 0.2, 0.4, 0.2, 0.1], -2.0, 1.0, 1.0, [0.0, 0.1, 0.2, 0.4, 0.2 + 0.1]),
        # atoms −2 … 2 move to −3½ −2½ −1½ −½ ½: two are clipped to −2, the others are halved
        ([0.1, 0.2, 0.4, 0.2, 0.1], -2.0, -1.5, 1.0, [0.3 + 0.2, 0.2 + 0.1, 0.1 + 0.05, 0.05, 0.0]),
        # the return ends with reward ¼: everything lies between 0 and 1, a quarter of the way
        ([0.5, 0.3, 0.2], 0.0, 0.25, 0.0, [0.75, 0.25, 0.0]),
        # the return ends exactly on an atom
        ([0.5, 0.3, 0.2], 0.0, 1.0, 0.0, [0.0, 1.0, 0.0]),
        # the return ends beyond either end
        ([0.5, 0.3, 0.2], 0.0, 9.0, 0.0, [0.0, 0.0, 1.0]),
        ([0.5, 0.3, 0.2], 0.0, -9.0, 0.0, [1.0, 0.0, 0.0]),
        # nothing moves
        ([0.5, 0.3, 0.2], 0.0, 0.0, 1.0, [0.5, 0.3, 0.2]),
    ],
)
def test_projection_worked_by_hand(
    probabilities: list[float], low: float, reward: float, discount: float, expected: list[float]
) -> None:
    high = low + len(probabilities) - 1  # atoms are 1 apart
    projected = project_atoms(
        torch.tensor([probabilities]), torch.tensor([reward]), torch.tensor([discount]), low=low, high=high
    )
    assert projected[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("atoms", "low", "high"), [(51, -10.0, 10.0), (51, -100.0, 100.0), (2, -1.0, 0.5), (7, 0, 3)])
def test_projection_equals_a_naive_loop_and_loses_no_mass(atoms: int, low: float, high: float) -> None:
    rng = torch.Generator().manual_seed(0)
    rows = 200
    probabilities = (torch.randn(rows, atoms, generator=rng) * 2).softmax(1)
    reward = torch.randn(rows, generator=rng) * (high - low) / 4
    reward[:50] = reward[:50].round()
    discount = torch.tensor([0.0, 0.99, 0.99**3, 1.0]).repeat(rows // 4)
    projected = project_atoms(probabilities, reward, discount, low=low, high=high)
    assert projected.sum(1).tolist() == pytest.approx([1.0] * rows, abs=1e-5)
    assert (projected >= 0.0).all()
    for row in range(rows):
        expected = project_naively(
            probabilities[row].tolist(), reward[row].item(), discount[row].item(), low=low, high=high
        )
        assert projected[row].tolist() == pytest.approx(expected, abs=1e-4)


def test_a_return_that_ends_on_an_atom_puts_all_mass_there() -> None:
    """Each of 51 atoms in turn is met as exactly as floats allow: none may swallow the mass."""
    atoms = torch.linspace(-10.0, 10.0, 51)
    projected = project_atoms(torch.full((51, 51), 1 / 51), atoms, torch.zeros(51), low=-10.0, high=10.0)
    torch.testing.assert_close(projected, torch.eye(51), atol=1e-5, rtol=0.0)


def test_the_mean_of_a_projection_within_the_support_is_the_discounted_mean() -> None:
    probabilities = torch.tensor([[0.1, 0.2, 0.3, 0.4]])  # atoms −3 −1 1 3: mean 1
    projected = project_atoms(probabilities, torch.tensor([0.7]), torch.tensor([0.5]), low=-3.0, high=3.0)
    assert (projected @ torch.tensor([-3.0, -1.0, 1.0, 3.0])).item() == pytest.approx(0.7 + 0.5 * 1.0)


def test_quantile_loss_worked_by_hand() -> None:
    predicted, target = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 4.0]])
    # τ = ¼ and ¾. Errors of the first: 1 and 4, Huber ½ and 3½, both targets above: weight ¼.
    # Errors of the second: −1 and 2, Huber ½ and 1½, weights 1 − ¾ and ¾.
    # Means over targets: (⅛ + ⅞) / 2 = ½ and (⅛ + 1⅛) / 2 = ⅝, summed over the quantiles.
    assert quantile_huber(predicted, target, 1.0).tolist() == pytest.approx([1.125])


def test_quantile_loss_with_another_kappa_worked_by_hand() -> None:
    predicted, target = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 4.0]])
    # Huber with κ = 2, over κ: 1 → ¼, 4 → 2 · (4 − 1) / 2 = 3, 2 → 1.
    # (¼ · ¼ + ¼ · 3) / 2 + (¼ · ¼ + ¾ · 1) / 2
    assert quantile_huber(predicted, target, 2.0).tolist() == pytest.approx([0.8125])


@pytest.mark.parametrize(("quantiles", "samples"), [(5, 3), (3, 5), (1, 4), (4, 1)])
@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_quantile_loss_equals_a_naive_loop_whatever_the_numbers_of_both(
    quantiles: int, samples: int, kappa: float
) -> None:
    rng = torch.Generator().manual_seed(quantiles)
    predicted = torch.randn(6, quantiles, generator=rng) * 2
    target = torch.randn(6, samples, generator=rng) * 2
    losses = quantile_huber(predicted, target, kappa)
    assert losses.shape == (6,)
    for row in range(6):
        total = 0.0
        for i in range(quantiles):
            tau = (2 * i + 1) / (2 * quantiles)
            for j in range(samples):
                error = target[row, j].item() - predicted[row, i].item()
                size = abs(error)
                huber = size * size / 2 if size <= kappa else kappa * size - kappa * kappa / 2
                weight = 1.0 - tau if error < 0 else tau
                total += weight * huber / kappa / samples
        assert losses[row].item() == pytest.approx(total, rel=1e-5)


def test_gradient_descent_ends_at_the_quantiles_of_the_samples() -> None:
    """A wrong sign of τ would find the quantiles in reverse, a wrong axis all of them at one place."""
    samples = torch.tensor([[-math.log(1 - (i + 0.5) / 1_000) for i in range(1_000)]])  # exponential, lopsided
    predicted = torch.zeros(1, 5, requires_grad=True)
    optimizer = torch.optim.Adam([predicted], lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        quantile_huber(predicted, samples, 0.01).sum().backward()  # a small κ: nearly the exact quantile loss
        optimizer.step()
    expected = [-math.log(1 - tau) for tau in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert predicted[0].tolist() == pytest.approx(expected, abs=0.05)


def test_the_gradient_of_the_quantile_loss_is_that_of_finite_differences() -> None:
    rng = torch.Generator().manual_seed(3)
    predicted = torch.randn(3, 4, dtype=torch.float64, generator=rng).mul(2).requires_grad_()
    target = torch.randn(3, 5, dtype=torch.float64, generator=rng).mul(2)
    assert torch.autograd.gradcheck(lambda p: quantile_huber(p, target, 1.3), (predicted,))
