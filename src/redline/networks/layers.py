"""Layers: plain, noisy or normalised; and the two initialisations of networks."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows

from redline.errors import check_positive


@runtime_checkable
class Layers(Protocol):
    """A recipe for dense layers, and for the activation that follows a hidden one."""

    def dense(self, size_in: int, size_out: int) -> nn.Linear:
        """Return a dense layer."""
        return nn.Linear(size_in, size_out)

    def activation(self, shape: Sequence[int]) -> list[nn.Module]:
        """Return the modules that follow a hidden layer with outputs of `shape`."""
        # in place: nothing reads what it overwrites, and another tensor of that size would cost memory traffic
        return [nn.ReLU(inplace=True)]

    def explore(self) -> bool:
        """Tell whether their noise makes a greedy actor explore."""
        return False


@dataclass(frozen=True)
class Plain(Layers):
    """PyTorch's dense layers."""


@dataclass(frozen=True)
class Noisy(Layers):
    """Dense layers with noisy weights, so that the network explores by itself (arXiv:1706.10295)."""

    sigma: float = 0.5
    """Initial noise: σ₀ of the paper, divided by the root of a layer's inputs."""

    def __post_init__(self) -> None:
        check_positive("layers.sigma", self.sigma, otherwise="; none is --layers plain")

    def dense(self, size_in: int, size_out: int) -> nn.Linear:
        return NoisyLinear(size_in, size_out, sigma=self.sigma)

    def explore(self) -> bool:
        return True


@dataclass(frozen=True)
class Normed(Layers):
    """Every hidden layer is normalised over all its units (arXiv:1607.06450)."""

    def activation(self, shape: Sequence[int]) -> list[nn.Module]:
        return [NormedPictures(*shape)] if len(shape) == 3 else [nn.LayerNorm(list(shape)), nn.ReLU(inplace=True)]


class Motion(nn.Module):
    """The differences between frames, and the newest frame, each with mean 0 and variance 1 over its pixels.

    Even small movements stand out. The static background is seen once, in the newest frame.
    """

    LARGEST = 8.0  # difference: where little moves, a few pixels would drown the newest frame

    def __init__(self, planes_per_frame: int) -> None:
        super().__init__()
        self.planes_per_frame = planes_per_frame

    def forward(self, planes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return changes and newest frame of stacked frames [B, K · C, H, W], oldest first."""
        pixels, depth = planes.to(torch.float32), self.planes_per_frame
        newest = pixels[:, -depth:]
        newest = F.layer_norm(newest, newest.shape[1:])  # [B, C, H, W]
        if pixels.shape[1] == depth:
            return (newest,)
        changes = pixels[:, depth:] - pixels[:, :-depth]  # [B, (K − 1) · C, H, W]
        return F.layer_norm(changes, changes.shape[1:]).clamp_(-self.LARGEST, self.LARGEST), newest


class NormedPictures(nn.Module):
    """LayerNorm and ReLU of pictures [B, C, H, W] whose channels lie innermost, without reordering them.

    Its weights lie as the pictures do, [H · W · C].
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.shape = (height, width, channels)
        self.weight = nn.Parameter(torch.ones(height * width * channels))
        self.bias = nn.Parameter(torch.zeros(height * width * channels))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        rows = pictures.permute(0, 2, 3, 1).flatten(1)  # [B, H · W · C]: a view
        out = F.layer_norm(rows, self.weight.shape, self.weight, self.bias).relu_()
        return out.view(-1, *self.shape).permute(0, 3, 1, 2)


class NoisyLinear(nn.Linear):
    """A dense layer with factorised noise: weight μ + σ · f(ε_out) f(ε_in)ᵀ, bias μ + σ · f(ε_out).

    The noise is the same for all rows until there is new noise; without any, only μ acts.
    """

    def __init__(self, size_in: int, size_out: int, *, sigma: float) -> None:
        super().__init__(size_in, size_out)
        start = sigma / math.sqrt(size_in)
        self.weight_sigma = nn.Parameter(torch.full((size_out, size_in), start))
        self.bias_sigma = nn.Parameter(torch.full((size_out,), start))
        self._noise: tuple[torch.Tensor, torch.Tensor] | None = None  # f(ε_in) [in], f(ε_out) [out]

    def take_noise(self, noise: torch.Tensor) -> None:
        """Take new noise [in + out], as `draw_noise` returns it."""
        self._noise = noise[: self.in_features], noise[self.in_features :]

    def silence(self) -> None:
        """Turn the noise off until there is new noise."""
        self._noise = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.linear(x, self.weight, self.bias)
        if self._noise is None:
            return out
        noise_in, noise_out = self._noise
        # the same as with a noisy matrix, which would cost a pass over all weights for every draw
        return out + F.linear(x * noise_in, self.weight_sigma, self.bias_sigma) * noise_out


def draw_noise(rng: np.random.Generator, size: int) -> torch.Tensor:
    """Draw f(ε) [size], where f(x) = sgn(x) · √|x|."""
    drawn = torch.from_numpy(rng.standard_normal(size, dtype=np.float32))
    return drawn.sign() * drawn.abs().sqrt()


class PixelConv2d(nn.Conv2d):
    """A convolution over pixels 0 … 255 that behaves as if they had been divided by 255.

    Scaling the weights costs thousands of multiplications, scaling a batch of pictures millions.
    """

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return F.conv2d(pixels, self.weight / 255.0, self.bias, self.stride, self.padding)


class Outputs(nn.Module):
    """An output layer; initialisations treat it apart from hidden layers."""

    def __init__(self, dense: nn.Linear, *, gain: float = 1.0) -> None:
        super().__init__()
        self.dense = dense
        self.gain = gain  # of an orthogonal start

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Predict in float32, whatever the precision of the layers before."""
        with in_float32(features.device.type):
            out: torch.Tensor = self.dense(features.float())
        return out


def in_float32(device: str) -> AbstractContextManager[object]:
    """Return a context in which products are float32 even inside of one that makes them bf16."""
    return torch.autocast(device, enabled=False) if is_in_bf16(device) else nullcontext()


def is_in_bf16(device: str) -> bool:
    """Tell whether products on a kind of device are bf16 at the moment."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def initialise(module: nn.Module, generator: torch.Generator, *, keep_variance: bool) -> None:
    """Draw all weights anew from PyTorch's default distribution, with `generator` alone.

    With `keep_variance` the hidden layers keep the variance of what they see (He et al. 2015, 1502.01852). The default
    shrinks it threefold per layer, and a ball of a few pixels is then lost in a constant background for a long time.
    """
    outputs = {id(part.dense) for part in module.modules() if isinstance(part, Outputs)}
    for layer in module.modules():
        if isinstance(layer, nn.RNNCellBase):
            _draw_cell(layer, generator)
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        if keep_variance and id(layer) not in outputs:  # values start near 0 in either case
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
        else:
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5.0), generator=generator)
        if layer.bias is not None:
            bound = 1.0 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def initialise_orthogonal(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights anew as orthogonal matrices with biases of 0, as is usual for policy gradients."""
    gains = {id(part.dense): part.gain for part in module.modules() if isinstance(part, Outputs)}
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=gains.get(id(layer), math.sqrt(2.0)), generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def _draw_cell(cell: nn.RNNCellBase, generator: torch.Generator) -> None:
    bound = 1.0 / math.sqrt(cell.hidden_size)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
