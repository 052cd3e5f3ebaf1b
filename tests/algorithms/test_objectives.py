"""What on-policy learners do with a rollout: losses and their gradients worked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from redline.algorithms.named.a2c import A2C
from redline.algorithms.on_policy import Clipped, OnPolicy, PolicyGradient, QLambda
from redline.errors import UserError
from redline.exploration import EpsilonGreedy, Greedy, Sampled
from redline.networks import Mlp
from redline.types import Batch, EnvSpec, Rollout, RolloutBatch

QUARTERS = [0.0, math.log(3.0)]  # logits of a policy of ¼ and ¾


def rows(*, action: list[int], advantage: list[float], target: list[float], probability: list[float]) -> RolloutBatch:
    return RolloutBatch(
        obs=torch.zeros(len(action), 1, 3),
        action=torch.tensor(action),
        log_probability=torch.tensor(probability).log(),
        advantage=torch.tensor(advantage),
        target=torch.tensor(target),
    )


def test_policy_gradient_loss_worked_by_hand() -> None:
    out = torch.tensor([[*QUARTERS, 2.0]], requires_grad=True)  # the value is 2
    batch = rows(action=[1], advantage=[2.0], target=[3.0], probability=[0.9])
    loss = PolicyGradient(entropy_weight=0.01, value_weight=0.5).losses(out, batch)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    # ½ · (2 − 3)² − 2 · ln ¾ − 0.01 · entropy
    assert loss.tolist() == pytest.approx([0.5 - 2 * math.log(0.75) - 0.01 * entropy])


def test_policy_gradient_worked_by_hand() -> None:
    out = torch.tensor([[*QUARTERS, 2.0]], requires_grad=True)
    batch = rows(action=[1], advantage=[2.0], target=[3.0], probability=[0.9])
    PolicyGradient(entropy_weight=0.0, value_weight=0.5).losses(out, batch).sum().backward()
    # advantage · (π − 1 for the action taken) and 2 · ½ · (2 − 3)
    assert out.grad is not None
    assert out.grad[0].tolist() == pytest.approx([2 * 0.25, 2 * (0.75 - 1), -1.0])


def test_a_policy_gradient_is_in_proportion_to_the_advantage_whatever_the_other_rows_are() -> None:
    objective = PolicyGradient(entropy_weight=0.0, value_weight=0.0)
    out = torch.tensor([[*QUARTERS, 0.0]]).repeat(2, 1)
    batch = rows(action=[1, 1], advantage=[1.0, 5.0], target=[0.0, 0.0], probability=[0.75, 0.75])
    assert objective.losses(out, batch).tolist() == pytest.approx([-math.log(0.75), -5 * math.log(0.75)])


def test_a_normalised_policy_gradient_is_the_same_for_rewards_a_hundred_times_as_large() -> None:
    objective = PolicyGradient(entropy_weight=0.0, value_weight=0.0, normalise="update")
    out = torch.tensor([[*QUARTERS, 0.0]]).repeat(2, 1)
    for scale in (1.0, 100.0):
        batch = rows(action=[1, 1], advantage=[scale, 5.0 * scale], target=[0.0, 0.0], probability=[0.75, 0.75])
        # 1 and 5 have mean 3 and standard deviation √8
        expected = [math.log(0.75) / math.sqrt(2), -math.log(0.75) / math.sqrt(2)]
        assert objective.losses(out, batch).tolist() == pytest.approx(expected)


def test_more_entropy_weight_makes_a_flat_policy_cheaper() -> None:
    batch = rows(action=[0, 0], advantage=[0.0, 0.0], target=[0.0, 0.0], probability=[0.5, 0.5])
    out = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])  # flat, sharp
    for objective in (PolicyGradient(entropy_weight=0.5), Clipped(entropy_weight=0.5)):
        flat, sharp = objective.losses(out, batch).tolist()
        assert flat == pytest.approx(-0.5 * math.log(2))
        assert flat < sharp


def test_the_entropy_weight_falls_to_nothing_over_its_steps() -> None:
    batch = rows(action=[0, 0], advantage=[0.0, 0.0], target=[0.0, 0.0], probability=[0.5, 0.5])
    out = torch.zeros(2, 3)  # entropy ln 2
    for kind in (PolicyGradient, Clipped):
        objective = kind(entropy_weight=0.5, entropy_anneal_steps=100)
        weights = [-objective.losses(out, batch, steps=steps)[0].item() / math.log(2) for steps in (0, 50, 100, 150)]
        assert weights == pytest.approx([0.5, 0.25, 0.0, 0.0])
        assert kind(entropy_weight=0.5).entropy_weight_at(1_000_000) == 0.5  # by default it stays
        later = kind(entropy_weight=0.5, entropy_anneal_steps=100, entropy_anneal_after_steps=200)
        assert [later.entropy_weight_at(steps) for steps in (0, 200, 250, 300)] == [0.5, 0.5, 0.25, 0.0]


def test_clipped_loss_worked_by_hand() -> None:
    out = torch.tensor([[*QUARTERS, 2.0], [*QUARTERS, 2.0]])
    # new over old probability: ¾ / ½ = 1½ and ¼ / ½ = ½; advantages 1 and 5 are −1/√2 and 1/√2 when normalised
    batch = rows(action=[1, 0], advantage=[1.0, 5.0], target=[3.0, 2.0], probability=[0.5, 0.5])
    loss = Clipped(clip=0.2, entropy_weight=0.0, value_weight=0.5).losses(out, batch)
    # more of what is bad is taken back in full, and so is less of what is good
    root = math.sqrt(0.5)
    assert loss.tolist() == pytest.approx([1.5 * root + 0.5, -0.5 * root], rel=1e-5)


def test_clipped_advantages_are_normalised_over_the_rows_of_the_update() -> None:
    objective = Clipped(entropy_weight=0.0, value_weight=0.0)
    advantage = [0.0, 1.0, 4.0, 7.0]
    out = torch.tensor([[*QUARTERS, 0.0]]).repeat(4, 1)

    def losses(values: list[float]) -> list[float]:
        count = len(values)
        probability = [0.75] * count  # ratios of 1: a loss is an advantage
        batch = rows(action=[1] * count, advantage=values, target=[0.0] * count, probability=probability)
        found: list[float] = objective.losses(out[:count], batch).tolist()
        return found

    # mean 3, standard deviation √((9 + 4 + 1 + 16) / 3) = √10
    assert losses(advantage) == pytest.approx([(3 - value) / math.sqrt(10) for value in advantage], rel=1e-5)
    assert losses([100 + 5 * value for value in advantage]) == pytest.approx(losses(advantage), rel=1e-4)
    assert losses(advantage[:2]) == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], rel=1e-5)  # not those of all four


def test_gradients_do_not_flow_where_the_ratio_is_clipped() -> None:
    objective = Clipped(clip=0.2, entropy_weight=0.0, value_weight=0.0)
    out = torch.tensor([[*QUARTERS, 0.0], [*QUARTERS, 0.0]], requires_grad=True)
    # ratios 1½ with a good action (clipped) and with a bad one (not clipped)
    batch = rows(action=[1, 1], advantage=[5.0, 1.0], target=[0.0, 0.0], probability=[0.5, 0.5])
    objective.losses(out, batch).sum().backward()
    assert out.grad is not None
    assert out.grad[0].tolist() == [0.0, 0.0, 0.0]
    # ratio · 1/√2 · (1 for the action taken − π): towards less of it
    slope = 1.5 * math.sqrt(0.5)
    assert out.grad[1].tolist() == pytest.approx([-0.25 * slope, 0.25 * slope, 0.0], rel=1e-5)


def test_q_lambda_fits_the_value_of_the_action_taken() -> None:
    out = torch.tensor([[[1.0], [5.0]], [[7.0], [2.0]]], requires_grad=True)
    batch = rows(action=[1, 1], advantage=[0.0, 0.0], target=[3.0, 3.0], probability=[1.0, 1.0])
    losses = QLambda().losses(out, batch)
    losses.sum().backward()
    assert losses.tolist() == [2.0, 0.5]
    assert out.grad is not None
    assert out.grad.squeeze(-1).tolist() == [[0.0, 2.0], [0.0, -1.0]]


def test_a_policy_prefers_by_its_logits_and_its_last_output_is_the_value() -> None:
    out = torch.tensor([[0.1, 0.2, 9.0]])
    assert torch.equal(PolicyGradient().preferences(out), out[:, :2])
    assert PolicyGradient().state_values(out).tolist() == [9.0]


def test_action_values_prefer_by_themselves_and_the_best_is_the_states_value() -> None:
    out = torch.tensor([[[1.0], [5.0], [3.0]]])
    assert QLambda().preferences(out).tolist() == [[1.0, 5.0, 3.0]]
    assert QLambda().state_values(out).tolist() == [5.0]


def test_targets_of_a_critic_are_advantages_plus_values() -> None:
    def column(*numbers: float) -> np.ndarray:
        return np.array(numbers, np.float32)[:, None]

    rollout = Rollout(
        reward=column(1, 2, 3),
        value=column(1, 2, 4),
        following=column(2, 4, 8),
        discount=column(0.5, 0.5, 0.5),
        trace=column(0.5, 0.5, 0.5),
    )
    # errors 1, 2, 3; each advantage adds ¼ of the next
    advantage, target = Clipped().targets(rollout)
    assert advantage[:, 0].tolist() == [1.6875, 2.75, 3.0]
    assert target[:, 0].tolist() == [2.6875, 4.75, 7.0]
    _, q_target = QLambda().targets(rollout)
    assert q_target[:, 0].tolist() == [2.6875, 4.75, 7.0]  # as worked in test_rollout_returns.py


def test_advantages_of_a_whole_rollout_are_normalised_once() -> None:
    def table(*rows: list[float]) -> np.ndarray:
        return np.array(rows, np.float32)

    # no bootstrapping: an advantage is the reward; mean 3, standard deviation √10 as above
    zeros = table([0, 0], [0, 0])
    rollout = Rollout(reward=table([0, 1], [4, 7]), value=zeros, following=zeros, discount=zeros, trace=zeros)
    objective = Clipped(entropy_weight=0.0, value_weight=0.0, normalise="rollout")
    advantage, target = objective.targets(rollout)
    assert advantage.flatten().tolist() == pytest.approx([(value - 3) / math.sqrt(10) for value in (0, 1, 4, 7)])
    assert target.flatten().tolist() == [0.0, 1.0, 4.0, 7.0]  # what the value is fitted to stays as it was
    batch = rows(action=[1, 1], advantage=[2.0, 3.0], target=[0.0, 0.0], probability=[0.75, 0.75])
    out = torch.tensor([[*QUARTERS, 0.0]]).repeat(2, 1)
    assert objective.losses(out, batch).tolist() == pytest.approx([-2.0, -3.0])


@pytest.mark.parametrize(
    ("objective", "explore", "message"),
    [
        (PolicyGradient(), EpsilonGreedy(), "policy-gradient acts by sampled: add --explore sampled"),
        (Clipped(), Greedy(), "clipped acts by sampled: add --explore sampled"),
        (QLambda(), Sampled(), "q-lambda acts by epsilon-greedy: add --explore epsilon-greedy"),
    ],
)
def test_explorations_that_do_not_suit_an_objective_are_refused(
    objective: QLambda, explore: Sampled, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        OnPolicy(objective=objective, explore=explore)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_steps": 0}, "rollout-steps is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch-size is 0"),
    ],
)
def test_impossible_rollouts_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(A2C, **changes)  # type: ignore[arg-type]


def test_impossible_objectives_are_refused() -> None:
    with pytest.raises(UserError, match=r"objective\.clip is 0\.0"):
        Clipped(clip=0.0)
    with pytest.raises(UserError, match=r"objective\.entropy-weight is -1\.0"):
        PolicyGradient(entropy_weight=-1.0)
    with pytest.raises(UserError, match=r"objective\.entropy-anneal-steps is -1"):
        Clipped(entropy_anneal_steps=-1)
    with pytest.raises(UserError, match=r"objective\.entropy-anneal-after-steps is -1"):
        Clipped(entropy_anneal_after_steps=-1)


def test_replay_is_no_rollout() -> None:
    spec = EnvSpec("test", (3,), "float32", stack=1, num_actions=2, frames_per_step=1)
    network = replace(A2C, network=Mlp((4,))).build_network(spec, torch.Generator())
    empty = torch.zeros(0)
    with pytest.raises(TypeError, match="not from a Batch"):
        A2C.losses(Batch(*[empty] * 6), stack=1, online=network, target=network)
