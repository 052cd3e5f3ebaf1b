"""Networks: shapes, scale, size and the sentences for what does not fit."""

import pytest
import torch
from torch import nn

from redline.errors import UserError
from redline.networks import Mlp, Nature, Plain, Small, Strided, Twin, build_policy_network, build_value_network
from redline.networks.layers import PixelConv2d
from redline.networks.torsos import Torso
from redline.types import EnvSpec


def spec(*frame_shape: int, stack: int = 4, num_actions: int = 6) -> EnvSpec:
    dtype = "uint8" if len(frame_shape) > 1 else "float32"
    return EnvSpec("test", frame_shape, dtype, stack, num_actions, frames_per_step=4)


def build(torso: Torso, env: EnvSpec, seed: int = 0) -> nn.Module:
    return build_value_network(torso, env, outputs=1, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("torso", "parameters"), [(Nature(), 1_687_206), (Small(), 677_686)])
def test_networks_of_the_papers_have_their_size(torso: Torso, parameters: int) -> None:
    # Nature: 8,224 + 32,832 + 36,928 + 1,606,144 + 3,078; 2013: 4,112 + 8,224 + 663,808 + 1,542
    network = build(torso, spec(84, 84))
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize("torso", [Nature(), Small(), Strided()])
@pytest.mark.parametrize("frame_shape", [(84, 84), (40, 40), (3, 96, 96)])
@pytest.mark.parametrize("stack", [1, 3, 4])
def test_pictures_of_any_size_depth_and_stack_fit(torso: Torso, frame_shape: tuple[int, ...], stack: int) -> None:
    network = build(torso, spec(*frame_shape, stack=stack))
    obs = torch.randint(0, 256, (2, stack, *frame_shape), dtype=torch.uint8)
    assert network(obs).shape == (2, 6, 1)


def test_strided_halves_the_picture_with_every_convolution() -> None:
    # 48 → 24 → 12 → 6: 592 + 4,640 + 9,248 for the convolutions, 1,152 × 256 + 256 and 256 × 6 + 6 behind them
    network = build(Strided(), spec(48, 48))
    assert network.torso(torch.zeros(1, 4, 48, 48, dtype=torch.uint8)).shape == (1, 6 * 6 * 32)
    assert sum(parameter.numel() for parameter in network.parameters()) == 592 + 4_640 + 9_248 + 295_168 + 1_542


def test_towers_share_nothing_but_what_they_see() -> None:
    generator = torch.Generator().manual_seed(0)
    network = build_policy_network(Twin((8, 5)), spec(3, stack=2), layers=Plain(), generator=generator)
    out = network(torch.randn(4, 2, 3))  # [B, A + 1]
    assert out.shape == (4, 7)
    of_policy, of_value = moved_by(network, out[:, 0].sum()), moved_by(network, out[:, -1].sum())
    assert of_policy.isdisjoint(of_value)
    assert of_policy | of_value == dict(network.named_parameters()).keys()


def test_shared_layers_belong_to_policy_and_value() -> None:
    generator = torch.Generator().manual_seed(0)
    network = build_policy_network(Mlp((8, 5)), spec(3), layers=Plain(), generator=generator)
    moved = moved_by(network, network(torch.randn(4, 4, 3))[:, -1].sum())
    own = {"head.policy.dense.weight", "head.policy.dense.bias"}
    assert moved == dict(network.named_parameters()).keys() - own


def moved_by(network: nn.Module, output: torch.Tensor) -> set[str]:
    """Return the parameters that an output depends on."""
    names, values = zip(*network.named_parameters(), strict=True)
    grads = torch.autograd.grad(output, values, retain_graph=True)
    return {name for name, grad in zip(names, grads, strict=True) if grad.any()}


def test_values_alone_have_no_use_for_towers() -> None:
    with pytest.raises(UserError, match="use --network mlp"):
        build(Twin(), spec(3))


def test_vectors_are_stacked_too() -> None:
    assert build(Mlp((8,)), spec(5, stack=3))(torch.randn(2, 3, 5)).shape == (2, 6, 1)


def test_pixels_count_as_if_divided_by_255() -> None:
    layer = PixelConv2d(4, 8, 8, 4)
    plain = nn.Conv2d(4, 8, 8, 4)
    plain.load_state_dict(layer.state_dict())
    pixels = torch.randint(0, 256, (2, 4, 84, 84)).float()
    torch.testing.assert_close(layer(pixels), plain(pixels / 255.0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("frame_shape", [(40, 40), (3, 44, 52)])
@pytest.mark.parametrize("recipe", [Nature(), Strided()])
def test_features_and_gradients_are_those_of_plain_convolutions_with_the_channels_outermost(
    recipe: Torso,
    frame_shape: tuple[int, ...],
) -> None:
    torso = build(recipe, spec(*frame_shape)).torso
    obs = torch.randint(0, 256, (3, 4, *frame_shape), dtype=torch.uint8)
    features = torso(obs)
    features.square().sum().backward()
    found = {name: value.grad.clone() for name, value in torso.named_parameters()}
    torso.zero_grad()
    plain = obs.flatten(1, -3).float() / 255.0
    if isinstance(recipe, Strided):
        plain = torch.cat(torso.motion(obs.flatten(1, -3)), dim=1)
    for layer in torso.convolutions:
        if isinstance(layer, nn.Conv2d):
            weight = layer.weight.contiguous()
            plain = nn.functional.conv2d(plain, weight, layer.bias, layer.stride, layer.padding).relu()
    plain.square().sum().backward()
    torch.testing.assert_close(features, plain.permute(0, 2, 3, 1).flatten(1), atol=1e-5, rtol=1e-4)
    for name, value in torso.named_parameters():
        torch.testing.assert_close(found[name], value.grad, atol=1e-4, rtol=1e-4)


def test_same_seed_same_weights_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, second, other = (build(Small(), spec(84, 84), seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["head.0.2.dense.weight"], other["head.0.2.dense.weight"])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_small_ball_on_a_bright_ground_is_still_seen_by_the_last_layer() -> None:
    """Features of pictures that differ in four pixels must differ: with PyTorch's default they are ten times closer."""
    obs = torch.full((64, 4, 84, 84), 87, dtype=torch.uint8)
    for row in range(64):
        obs[row, :, row : row + 2, 40:42] = 236
    network = build(Small(), spec(84, 84))
    hidden = network.head[0][:2]  # the last hidden layer and its activation
    features = hidden(network.torso(obs))
    assert features.std(dim=0).mean() > 0.005


@pytest.mark.parametrize(
    ("torso", "env", "message"),
    [
        (Mlp(), spec(84, 84), "use --network nature"),
        (Nature(), spec(4), "use --network mlp"),
        (Nature(), spec(35, 35), "use --network strided, or --env.size 36"),
        (Small(), spec(19, 19), "use --network strided, or --env.size 20"),
    ],
)
def test_what_does_not_fit_is_said_with_a_remedy(torso: Torso, env: EnvSpec, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(torso, env)


def test_the_smallest_size_named_in_the_remedy_works() -> None:
    assert build(Nature(), spec(36, 36))(torch.zeros(1, 4, 36, 36, dtype=torch.uint8)).shape == (1, 6, 1)
    assert build(Small(), spec(20, 20))(torch.zeros(1, 4, 20, 20, dtype=torch.uint8)).shape == (1, 6, 1)
