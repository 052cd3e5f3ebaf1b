"""Torsos turn an observation into features: convolutions for pictures, dense layers for vectors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from redline.errors import UserError
from redline.networks.layers import Layers, Motion, PixelConv2d, is_in_bf16
from redline.types import EnvSpec


@runtime_checkable
class Torso(Protocol):
    """A recipe for the part of a network that reads the observation, up to its last hidden layer."""

    def last_width(self) -> int:
        """Return the units of the last hidden layer; each stream of the head has such a layer of its own."""

    def towers(self) -> int:
        """Return 2 where policy and value share nothing; their features are then concatenated."""
        return 1

    def reads_vectors(self) -> bool:
        """Tell whether it reads vectors, not pictures."""
        return False

    def build(self, spec: EnvSpec, layers: Layers) -> tuple[nn.Module, int]:
        """Return a module from observations [B, K, *frame] to features [B, towers · F], and F."""


@dataclass(frozen=True)
class Convolutional(Torso):
    """Convolutions over pictures, before a dense layer."""

    width: int
    """Units in the dense layer."""

    def __post_init__(self) -> None:
        _check_widths(self.width)

    def last_width(self) -> int:
        return self.width


@dataclass(frozen=True)
class Nature(Convolutional):
    """The network of the 2015 DQN paper: 9.3 M multiply-adds per state at 84 × 84."""

    width: int = 512

    def build(self, spec: EnvSpec, layers: Layers) -> tuple[nn.Module, int]:
        return _convolutions(spec, [(32, 8, 4), (64, 4, 2), (64, 3, 1)], layers=layers, name="nature")


@dataclass(frozen=True)
class Small(Convolutional):
    """The network of the 2013 DQN paper: 3.2 × cheaper than `nature`, and enough for Pong."""

    width: int = 256

    def build(self, spec: EnvSpec, layers: Layers) -> tuple[nn.Module, int]:
        return _convolutions(spec, [(16, 8, 4), (32, 4, 2)], layers=layers, name="small")


@dataclass(frozen=True)
class Strided(Convolutional):
    """3×3 convolutions of stride 2 over the newest frame and frame differences, for pictures of 42 to 64 pixels.

    `small` is too coarse there, and a constant background would hide a ball of one pixel.
    """

    width: int = 256
    channels: tuple[int, ...] = (16, 32, 32)
    """Channels of each convolution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_widths(*self.channels)

    def build(self, spec: EnvSpec, layers: Layers) -> tuple[nn.Module, int]:
        shapes = [(channels, 3, 2) for channels in self.channels]
        return _convolutions(spec, shapes, layers=layers, name="strided", padding=1, sees_motion=True)


@dataclass(frozen=True)
class Mlp(Torso):
    """Dense layers for vector observations."""

    widths: tuple[int, ...] = (128, 128)
    """Units in each layer."""

    def __post_init__(self) -> None:
        _check_widths(*self.widths)

    def last_width(self) -> int:
        return self.widths[-1]

    def reads_vectors(self) -> bool:
        return True

    def build(self, spec: EnvSpec, layers: Layers) -> tuple[nn.Module, int]:
        return _dense(spec, self.widths, layers=layers, name="mlp")


@dataclass(frozen=True)
class Twin(Mlp):
    """Dense layers for vector observations, one stack for the policy and another for the value.

    The gradient of values around a hundred is so much larger than a policy's that shared layers would only serve them.
    """

    widths: tuple[int, ...] = (64, 64)
    """Units in each layer of each stack."""

    def towers(self) -> int:
        return 2

    def build(self, spec: EnvSpec, layers: Layers) -> tuple[nn.Module, int]:
        policy, features = _dense(spec, self.widths, layers=layers, name="twin")
        value, _ = _dense(spec, self.widths, layers=layers, name="twin")
        return SideBySide(policy, value), features


class SideBySide(nn.Module):
    """The features of two modules, concatenated."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(obs) for part in self.parts], dim=1)


class ConvolutionalTorso(nn.Module):
    """Stacked frames → channels → convolutions → features, with the channels innermost throughout."""

    def __init__(self, convolutions: nn.Sequential, *, motion: Motion | None = None) -> None:
        super().__init__()
        self.convolutions = convolutions
        self.motion = motion  # instead of the plain frames, if given

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        planes = obs.flatten(1, -3)  # [B, K · channels, H, W]
        pixels = channels_last(planes) if self.motion is None else channels_last(*self.motion(planes))
        out: torch.Tensor = self.convolutions(pixels)
        # in memory order: views in both passes
        return out.permute(0, 2, 3, 1).flatten(1)


def channels_last(*groups: torch.Tensor) -> torch.Tensor:
    """Return the planes of all groups [B, C, H, W] as numbers to multiply, channels innermost for convolutions.

    Whole numbers to 255 are exact in bf16 too. Planes are copied one after the other: all threads take part, and
    nothing is written twice.
    """
    kind = groups[0].device.type
    dtype = torch.bfloat16 if is_in_bf16(kind) else torch.float32
    if kind != "cpu":  # a kernel for each plane would take longer
        together = groups[0] if len(groups) == 1 else torch.cat(groups, 1)
        return together.to(dtype, memory_format=torch.channels_last)
    planes = [plane for group in groups for plane in group.unbind(1)]
    pixels = planes[0].new_empty((*planes[0].shape, len(planes)), dtype=dtype)  # [B, H, W, C]
    for channel, plane in enumerate(planes):
        pixels[..., channel].copy_(plane)
    return pixels.permute(0, 3, 1, 2)


def _dense(spec: EnvSpec, widths: Sequence[int], *, layers: Layers, name: str) -> tuple[nn.Module, int]:
    """Return all dense layers but the last, which belongs to the head, and the number of features."""
    if spec.is_image:
        raise UserError(f"network {name} reads vectors, but {spec.name} shows pictures: use --network nature")
    sizes = [spec.stack * spec.frame_shape[0], *widths[:-1]]
    modules: list[nn.Module] = [nn.Flatten()]
    for size_in, size_out in pairwise(sizes):
        # never noisy, like the convolutions: noise belongs to the head
        modules += [nn.Linear(size_in, size_out), *layers.activation([size_out])]
    return nn.Sequential(*modules), sizes[-1]


def _check_widths(*widths: int) -> None:
    if not widths or not all(1 <= width <= 65_536 for width in widths):
        raise UserError(f"a network's layers have 1 to 65_536 units each, not {', '.join(map(str, widths)) or 'none'}")


def _convolutions(
    spec: EnvSpec,
    shapes: Sequence[tuple[int, int, int]],
    *,
    layers: Layers,
    name: str,
    padding: int = 0,
    sees_motion: bool = False,
) -> tuple[nn.Module, int]:
    """Return convolutions with (channels, kernel, stride) each, over the frames or over motion."""
    if not spec.is_image:
        raise UserError(f"network {name} reads pictures, but {spec.name} gives vectors: use --network mlp")
    *depth, height, breadth = spec.frame_shape
    channels = spec.stack * math.prod(depth)
    motion = Motion(math.prod(depth)) if sees_motion else None
    modules: list[nn.Module] = []
    for channels_out, kernel, stride in shapes:
        if min(height, breadth) + 2 * padding < kernel:
            raise UserError(
                f"pictures of {spec.frame_shape[-2]} × {spec.frame_shape[-1]} are too small for network {name}: "
                f"use --network strided, or --env.size {_smallest_size(shapes)} or more with an Atari game"
            )
        convolution = nn.Conv2d if modules or motion else PixelConv2d
        modules.append(convolution(channels, channels_out, kernel, stride, padding))
        height, breadth, channels = (
            (height + 2 * padding - kernel) // stride + 1,
            (breadth + 2 * padding - kernel) // stride + 1,
            channels_out,
        )
        modules += layers.activation([channels, height, breadth])
    return ConvolutionalTorso(nn.Sequential(*modules), motion=motion), channels * height * breadth


def _smallest_size(shapes: Sequence[tuple[int, int, int]]) -> int:
    size = 1
    for _, kernel, stride in reversed(shapes):
        size = (size - 1) * stride + kernel
    return size
