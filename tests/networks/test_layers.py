"""Layers: factorised noise, normalisation, and the weights that policy networks start from."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from redline.algorithms.family import ActorParams, act
from redline.algorithms.named.noisy_dqn import NOISY_DQN
from redline.algorithms.optimizers import Adam
from redline.errors import UserError
from redline.learner import Learner
from redline.networks import (
    Mlp,
    Nature,
    Network,
    Noisy,
    Normed,
    Plain,
    Small,
    Strided,
    build_policy_network,
    build_value_network,
)
from redline.networks.layers import Motion, NoisyLinear, NormedPictures, PixelConv2d, draw_noise
from redline.types import Batch, EnvSpec

VECTORS = EnvSpec("test", (3,), "float32", stack=2, num_actions=4, frames_per_step=1)
PICTURES = EnvSpec("test", (40, 40), "uint8", stack=4, num_actions=3, frames_per_step=4)
NOISY_MLP = replace(NOISY_DQN, network=Mlp((8,)), optimizer=Adam(lr=1e-30))  # updates that move no weight
CPU = torch.device("cpu")


def noise_only(size_in: int, size_out: int, *, seed: int = 0) -> NoisyLinear:
    """Return a layer whose μ is 0, so that its output is its noise."""
    layer = NoisyLinear(size_in, size_out, sigma=0.5)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    resample(layer, seed)
    return layer


def resample(layer: NoisyLinear, seed: int) -> None:
    layer.take_noise(draw_noise(np.random.default_rng(seed), layer.in_features + layer.out_features))


def noise_of(layer: NoisyLinear) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the noise of weights [out, in] and biases [out], seen from outside."""
    with torch.no_grad():
        bias = layer(torch.zeros(1, layer.in_features))[0]
        return (layer(torch.eye(layer.in_features)) - bias).T, bias


def learner_batch() -> Batch:
    return Batch(
        frames=torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0)),
        offset=torch.ones(4, dtype=torch.int64),
        action=torch.zeros(4, dtype=torch.int64),
        reward=torch.ones(4),
        discount=torch.full((4,), 0.9),
        weight=torch.ones(4),
    )


def test_noise_is_factorised() -> None:
    """One number per input and one per output: the matrix is their product, and the bias has the outputs'."""
    weight, bias = noise_of(noise_only(6, 5))
    assert torch.linalg.matrix_rank(weight, rtol=1e-5) == 1
    ratio = weight / bias[:, None]  # [out, in]: f(ε_in), the same for every output
    torch.testing.assert_close(ratio, ratio[:1].expand(5, -1), atol=1e-5, rtol=1e-4)
    assert (weight != 0.0).all()


def test_noise_is_the_signed_root_of_a_normal_number() -> None:
    _, bias = noise_of(noise_only(4, 40_000))
    f = bias / (0.5 / math.sqrt(4))
    # E f = 0, E f² = E |ε| = √(2/π), E f⁴ = E ε² = 1; each ± 5 standard errors of 40,000 draws
    assert f.mean().item() == pytest.approx(0.0, abs=0.023)
    assert f.square().mean().item() == pytest.approx(math.sqrt(2 / math.pi), abs=0.016)
    assert f.pow(4).mean().item() == pytest.approx(1.0, abs=0.036)


def test_noise_differs_between_draws_and_not_between_generators_of_the_same_seed() -> None:
    layer, twin = noise_only(6, 5, seed=1), noise_only(6, 5, seed=1)
    first, _ = noise_of(layer)
    assert torch.equal(first, noise_of(twin)[0])
    resample(layer, 2)
    assert (noise_of(layer)[0] != first).all()


def test_noise_is_the_same_for_all_rows_until_it_is_drawn_again() -> None:
    layer = noise_only(6, 5)
    row = torch.randn(1, 6)
    out = layer(row.repeat(3, 1))
    torch.testing.assert_close(out, layer(row).repeat(3, 1))


def test_a_silent_layer_is_its_means() -> None:
    layer, rows = NoisyLinear(6, 5, sigma=0.5), torch.randn(3, 6)
    means = rows @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(rows), means)  # nothing was drawn yet
    resample(layer, 0)
    assert not torch.allclose(layer(rows), means)
    layer.silence()
    torch.testing.assert_close(layer(rows), means)


def test_noise_starts_at_half_over_the_root_of_the_inputs_and_is_learnt() -> None:
    network = build_value_network(
        Mlp((8,)), VECTORS, outputs=1, generator=torch.Generator().manual_seed(0), layers=Noisy()
    )
    layers = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]
    assert [layer.in_features for layer in layers] == [6, 8]
    for layer in layers:
        expected = 0.5 / math.sqrt(layer.in_features)
        assert layer.weight_sigma.flatten().tolist() == pytest.approx([expected] * layer.weight.numel())
        assert layer.bias_sigma.tolist() == pytest.approx([expected] * layer.out_features)
    network.resample(np.random.default_rng(0))
    network(torch.randn(4, 2, 3)).sum().backward()
    assert all(layer.weight_sigma.grad is not None and layer.weight_sigma.grad.any() for layer in layers)


@pytest.mark.parametrize(("torso", "spec"), [(Mlp((8, 8)), VECTORS), (Small(width=16), PICTURES)])
def test_every_layer_that_values_is_noisy_and_none_that_sees(torso: Mlp, spec: EnvSpec) -> None:
    network = build_value_network(torso, spec, outputs=1, generator=torch.Generator().manual_seed(0), layers=Noisy())
    assert network.is_noisy
    dense = [layer for layer in network.head.modules() if isinstance(layer, nn.Linear)]
    assert len(dense) == 2
    assert all(isinstance(layer, NoisyLinear) for layer in dense)
    assert not any(isinstance(layer, NoisyLinear) for layer in network.torso.modules())


def test_online_and_target_network_have_different_noise_and_both_are_redrawn_for_every_update() -> None:
    learner = Learner(replace(NOISY_MLP, target_sync_updates=1_000), VECTORS, seed=1, device=CPU)
    obs, outs = torch.randn(1, 2, 3), []
    for update in range(3):
        learner.update(learner_batch(), steps=0, rng=np.random.default_rng(update))
        with torch.no_grad():
            outs += [learner.online(obs), learner.target(obs)]
    for network in (learner.online, learner.target):
        network.silence()
    assert torch.equal(learner.online(obs), learner.target(obs))  # the same weights: only the noise told them apart
    assert len({tuple(out.flatten().tolist()) for out in outs}) == 6


def acted(network: Network, obs: np.ndarray, seed: int, *, is_warmup: bool = False) -> np.ndarray | None:
    params = ActorParams(NOISY_MLP, network, epsilon=0.0, device=CPU, is_warmup=is_warmup)
    return act(params, obs, torch.zeros(len(obs), 0), np.random.default_rng(seed))[2].preferences


def test_every_act_draws_new_noise_once_for_all_envs() -> None:
    network = NOISY_MLP.build_network(VECTORS, torch.Generator().manual_seed(0))
    obs = np.ones((3, 2, 3), np.float32)
    first, again, other = (acted(network, obs, seed) for seed in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert np.array_equal(first, again)
    assert (first != other).all()
    np.testing.assert_allclose(first, first[:1].repeat(3, axis=0), rtol=1e-6)


def test_a_plain_network_has_no_noise() -> None:
    network = build_value_network(Mlp((8,)), VECTORS, outputs=1, generator=torch.Generator(), layers=Plain())
    assert not network.is_noisy


def test_normed_networks_normalise_every_hidden_layer_and_no_other() -> None:
    def shapes(network: Network) -> list[tuple[int, ...]]:
        norms = [layer for layer in network.modules() if isinstance(layer, nn.LayerNorm | NormedPictures)]
        return [norm.shape if isinstance(norm, NormedPictures) else norm.normalized_shape for norm in norms]

    generator = torch.Generator().manual_seed(0)
    dense = build_value_network(Mlp((8, 5)), VECTORS, outputs=1, generator=generator, layers=Normed())
    assert shapes(dense) == [(8,), (5,)]
    # 40 pixels → 9 → 3 → 1 by convolutions of 8/4, 4/2 and 3/1
    pictures = build_value_network(Nature(width=16), PICTURES, outputs=1, generator=generator, layers=Normed())
    assert shapes(pictures) == [(9, 9, 32), (3, 3, 64), (1, 1, 64), (16,)]


def test_normed_pictures_and_their_gradients_are_those_of_layernorm_and_relu() -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(4, 3, 5, 6, generator=generator).to(memory_format=torch.channels_last).requires_grad_()
    scale, shift = (torch.randn(3, 5, 6, generator=generator) for _ in range(2))
    ours, torchs = NormedPictures(3, 5, 6), nn.LayerNorm([3, 5, 6])
    with torch.no_grad():
        for values, own, other in ((scale, ours.weight, torchs.weight), (shift, ours.bias, torchs.bias)):
            other.copy_(values)
            own.copy_(values.permute(1, 2, 0).flatten())
    wanted, grads_wanted = torchs(pictures).relu(), torch.randn(4, 3, 5, 6, generator=generator)
    expected = torch.autograd.grad(wanted, [pictures, torchs.weight, torchs.bias], grads_wanted)
    got = ours(pictures)
    actual = torch.autograd.grad(got, [pictures, ours.weight, ours.bias], grads_wanted)
    torch.testing.assert_close(got, wanted)
    assert got.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(actual[0], expected[0])
    for own, other in zip(actual[1:], expected[1:], strict=True):
        torch.testing.assert_close(own, other.permute(1, 2, 0).flatten())


def test_motion_is_the_newest_frame_and_what_changed_before_it() -> None:
    # three frames of two pixels: 5 3 → 1 9 → 7 7
    planes = torch.tensor([[5, 3], [1, 9], [7, 7]], dtype=torch.uint8).reshape(1, 3, 1, 2)
    changes, newest = Motion(1)(planes)
    # −4 6 6 −2: mean 1.5, variance (30.25 + 2 · 20.25 + 12.25) / 4
    wanted = (torch.tensor([-4.0, 6.0, 6.0, -2.0]) - 1.5) / math.sqrt(20.75)
    torch.testing.assert_close(changes.flatten(), wanted)
    assert (newest == 0.0).all()  # all of one colour


def test_motion_of_coloured_frames_is_that_of_each_colour() -> None:
    planes = torch.randint(0, 256, (2, 4 * 3, 5, 6), dtype=torch.uint8)
    frames = planes.float().reshape(2, 4, 3, 5, 6)
    changes, newest = Motion(3)(planes)
    plain = (frames[:, 1:] - frames[:, :-1]).flatten(1)
    plain = (plain - plain.mean(1, keepdim=True)) / plain.std(1, unbiased=False, keepdim=True)
    torch.testing.assert_close(changes, plain.reshape(2, 9, 5, 6), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(newest, torch.nn.functional.layer_norm(frames[:, -1], (3, 5, 6)))


def test_what_moves_is_seen_whatever_the_background_and_never_without_bound() -> None:
    def seen(ground: int) -> tuple[torch.Tensor, ...]:
        obs = torch.full((1, 4, 40, 40), ground, dtype=torch.uint8)
        for frame in range(4):
            obs[0, frame, 20, 10 + frame] += 50  # a ball of one pixel
        return Motion(1)(obs)

    for dark, grey in zip(seen(0), seen(87), strict=True):
        torch.testing.assert_close(dark, grey)
    changes, _ = seen(87)
    assert changes.abs().max() == Motion.LARGEST
    assert (changes[0, -1, 20, 12].item(), changes[0, -1, 20, 13].item()) == (-Motion.LARGEST, Motion.LARGEST)


def test_a_single_frame_has_no_motion() -> None:
    (newest,) = Motion(1)(torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8))
    assert newest.shape == (2, 1, 8, 8)


def test_strided_scales_no_pixels_twice() -> None:
    network = build_value_network(Strided(), PICTURES, outputs=1, generator=torch.Generator().manual_seed(0))
    assert not any(isinstance(layer, PixelConv2d) for layer in network.modules())


def test_what_a_norm_of_vectors_gives_has_mean_zero_and_variance_one_in_each_row() -> None:
    generator = torch.Generator().manual_seed(0)
    network = build_value_network(Mlp((16, 16)), VECTORS, outputs=1, generator=generator, layers=Normed())
    seen: list[torch.Tensor] = []
    for layer in network.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.register_forward_hook(lambda _, __, out: seen.append(out.clone()))
    network(torch.randn(5, 2, 3))
    assert len(seen) == 2
    for out in seen:
        torch.testing.assert_close(out.mean(1), torch.zeros(5), atol=1e-5, rtol=0.0)
        torch.testing.assert_close(out.var(1, unbiased=False), torch.ones(5), atol=0.02, rtol=0.0)


def gram(weight: torch.Tensor) -> torch.Tensor:
    """Return the products of the rows with one another, or of the columns if there are fewer."""
    flat = weight.detach().flatten(1)
    return flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat


@pytest.mark.parametrize(("torso", "spec"), [(Mlp((16, 12)), VECTORS), (Small(width=32), PICTURES)])
def test_policy_networks_start_orthogonal_with_their_gains_and_biases_of_zero(torso: Mlp, spec: EnvSpec) -> None:
    network = build_policy_network(torso, spec, layers=Plain(), generator=torch.Generator().manual_seed(0))
    outputs = {id(network.head.policy.dense): 0.01, id(network.head.value.dense): 1.0}  # type: ignore[union-attr]
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) >= 4
    for layer in layers:
        products = gram(layer.weight)
        expected = outputs.get(id(layer), math.sqrt(2.0)) ** 2 * torch.eye(len(products))
        torch.testing.assert_close(products, expected, atol=1e-4 * expected.max().item(), rtol=0.0)
        assert layer.bias is not None
        assert (layer.bias == 0.0).all()


def test_a_policy_starts_nearly_uniform() -> None:
    network = build_policy_network(Small(), PICTURES, layers=Plain(), generator=torch.Generator().manual_seed(0))
    obs = torch.randint(0, 256, (16, 4, 40, 40), dtype=torch.uint8)
    out = network(obs)
    assert out.shape == (16, 4)  # three logits and the value
    torch.testing.assert_close(out[:, :3].softmax(1), torch.full((16, 3), 1 / 3), atol=0.02, rtol=0.0)


def test_no_noise_is_asked_for_by_another_name() -> None:
    with pytest.raises(UserError, match="none is --layers plain"):
        Noisy(sigma=0.0)
