"""Layers that PyTorch lacks, and the initialisation that every network shares."""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows


class PixelConv2d(nn.Conv2d):
    """A convolution over pixels 0 … 255 that behaves as if they had been divided by 255.

    Scaling the weights costs thousands of multiplications, scaling a batch of pictures millions.
    """

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return F.conv2d(pixels, self.weight / 255.0, self.bias, self.stride)


def initialise(module: nn.Module, generator: torch.Generator, *, keep_variance: bool) -> None:
    """Draw all weights anew from PyTorch's default distribution, with `generator` alone.

    With `keep_variance` the hidden layers keep the variance of what they see (He et al. 2015, 1502.01852). The default
    shrinks it threefold per layer, and a ball of a few pixels is then lost in a constant background for a long time.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers:
        if keep_variance and layer is not layers[-1]:  # values start near 0 in either case
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
        else:
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5.0), generator=generator)
        if layer.bias is not None:
            bound = 1.0 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
