"""Heads: two streams that are joined row by row."""

import pytest
import torch
from torch import nn

from redline.networks import Dueling, Mlp, Small, build_value_network
from redline.networks.network import DuelingHead
from redline.types import EnvSpec

VECTORS = EnvSpec("test", (3,), "float32", stack=1, num_actions=4, frames_per_step=1)
PICTURES = EnvSpec("test", (40, 40), "uint8", stack=4, num_actions=3, frames_per_step=4)


class Columns(nn.Module):
    """Gives some of its inputs."""

    def __init__(self, *columns: int) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, list(self.columns)]


def test_dueling_worked_by_hand() -> None:
    head = DuelingHead(value=Columns(0), advantage=Columns(1, 2, 3), shape=(3, 1))
    out = head(torch.tensor([[10.0, 1.0, 2.0, 6.0], [20.0, 0.0, 0.0, 3.0]]))
    # mean advantages 3 and 1, each of its own row
    assert out.squeeze(-1).tolist() == [[8.0, 9.0, 13.0], [19.0, 19.0, 22.0]]


def test_dueling_takes_the_mean_over_actions_for_each_output() -> None:
    head = DuelingHead(value=Columns(0, 1), advantage=Columns(2, 3, 4, 5), shape=(2, 2))
    out = head(torch.tensor([[10.0, 100.0, 1.0, 5.0, 3.0, 9.0]]))
    # advantages of the first output 1 and 3, of the second 5 and 9: means 2 and 7
    assert out.tolist() == [[[9.0, 98.0], [11.0, 102.0]]]


@pytest.mark.parametrize("outputs", [1, 51])
@pytest.mark.parametrize(("torso", "spec"), [(Mlp((16,)), VECTORS), (Small(width=32), PICTURES)])
def test_a_rows_output_does_not_depend_on_the_other_rows(torso: Mlp, spec: EnvSpec, outputs: int) -> None:
    network = build_value_network(
        torso, spec, outputs=outputs, generator=torch.Generator().manual_seed(0), streams=Dueling()
    )
    shape = (6, spec.stack, *spec.frame_shape)
    obs = torch.randn(shape) if spec is VECTORS else torch.randint(0, 256, shape, dtype=torch.uint8)
    together = network(obs)
    assert together.shape == (6, spec.num_actions, outputs)
    for row in range(6):
        torch.testing.assert_close(network(obs[row : row + 1])[0], together[row], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(network(obs.flip(0)).flip(0), together, atol=1e-5, rtol=1e-4)


def test_the_mean_over_actions_is_the_value_stream() -> None:
    network = build_value_network(
        Mlp((16,)), VECTORS, outputs=2, generator=torch.Generator().manual_seed(0), streams=Dueling()
    )
    obs = torch.randn(5, 1, 3)
    torch.testing.assert_close(network(obs).mean(1), network.head.value(network.torso(obs)))  # type: ignore[operator]
