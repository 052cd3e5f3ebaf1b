"""Other ways to run the convolutions of the Nature network, with the same weights: what learner_trials.py compares."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows

from redline.networks.layers import NormedPictures
from redline.networks.torsos import ConvolutionalTorso, channels_last

Convert = Callable[[torch.Tensor], torch.Tensor]  # stacked frames [B, K, H, W] → pixels as float32
PIXELS = 255.0


class OtherTorso(nn.Module):
    """The convolutions of a torso with other ways to convert pixels, to rectify and to flatten."""

    def __init__(
        self,
        torso: ConvolutionalTorso,
        *,
        convert: Convert = channels_last,
        in_place: bool = True,
        as_it_lies: bool = True,
    ) -> None:
        super().__init__()
        self.convolutions = torso.convolutions
        self._convert = convert
        self._in_place = in_place
        self._as_it_lies = as_it_lies

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out = self._convert(obs)
        for layer in self.convolutions:
            out = F.relu(out, inplace=self._in_place) if isinstance(layer, nn.ReLU) else layer(out)
        return out.permute(0, 2, 3, 1).flatten(1) if self._as_it_lies else out.flatten(1)


class OtherFirstLayer(nn.Module):
    """A torso whose first layer is computed in another way."""

    def __init__(self, torso: ConvolutionalTorso, first: Callable[[torch.Tensor, nn.Conv2d], torch.Tensor]) -> None:
        super().__init__()
        layer = torso.convolutions[0]
        if not isinstance(layer, nn.Conv2d):
            raise TypeError("a torso begins with a convolution")
        self.layer, self.rest = layer, torso.convolutions[1:]
        self._first = first

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.rest(self._first(obs, self.layer))
        return out.permute(0, 2, 3, 1).flatten(1)


def divided_pixels(obs: torch.Tensor, layer: nn.Conv2d) -> torch.Tensor:
    """Divide the pixels by 255, and not the weights."""
    return F.conv2d(channels_last(obs) / PIXELS, layer.weight, layer.bias, layer.stride)


def space_to_depth(obs: torch.Tensor, layer: nn.Conv2d) -> torch.Tensor:
    """Compute 8 × 8 with stride 4 on 4 channels as 2 × 2 with stride 1 on 64: the same sums."""
    rows, stack, height, width = obs.shape
    blocks = obs.view(rows, stack, height // 4, 4, width // 4, 4).permute(0, 2, 4, 1, 3, 5)
    pixels = blocks.reshape(rows, height // 4, width // 4, 16 * stack).to(torch.float32).permute(0, 3, 1, 2)
    split = layer.weight.view(-1, stack, 2, 4, 2, 4)
    weight = split.permute(0, 1, 3, 5, 2, 4).reshape(-1, 16 * stack, 2, 2) / PIXELS
    return F.conv2d(pixels, weight.contiguous(memory_format=torch.channels_last), layer.bias)


class InPieces(nn.Module):
    """A few rows at a time, so that they stay in the cache from layer to layer."""

    def __init__(self, torso: nn.Module, *, rows: int) -> None:
        super().__init__()
        self.torso = torso
        self._rows = rows

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.torso(piece) for piece in torch.split(obs, self._rows)])


class HalvesOnTwoThreads(nn.Module):
    """Half of the rows here, half on another thread, each with one thread of its own and no barrier between."""

    def __init__(self, torso: ConvolutionalTorso) -> None:
        super().__init__()
        self.torso = torso
        self._partner = Partner()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        weights = self.torso.parameters()
        out: torch.Tensor = _Halves.apply(self, obs, torch.is_grad_enabled(), *weights)  # type: ignore[no-untyped-call]
        return out

    def together(self, job: Callable[[int], Any]) -> tuple[Any, Any]:
        """Run job(0) here and job(1) there."""
        threads = torch.get_num_threads()
        self._partner.start(lambda: job(1))
        torch.set_num_threads(1)
        try:
            mine = job(0)
        finally:
            torch.set_num_threads(threads)
        return mine, self._partner.finish()


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, module: HalvesOnTwoThreads, obs: torch.Tensor, with_grad: bool, *weights: Any
    ) -> torch.Tensor:
        halves = obs.chunk(2)

        def run(half: int) -> torch.Tensor:
            with torch.set_grad_enabled(with_grad):
                out: torch.Tensor = module.torso(halves[half])
                return out

        ctx.module, ctx.weights = module, weights
        ctx.outs = module.together(run)
        return torch.cat([out.detach() for out in ctx.outs])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        halves = gradient.chunk(2)
        first, second = ctx.module.together(lambda half: torch.autograd.grad(ctx.outs[half], ctx.weights, halves[half]))
        return (None, None, None, *(one.add_(other) for one, other in zip(first, second, strict=True)))


class Partner:
    """A thread that does one job after the other, with one thread of torch's."""

    def __init__(self) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._job: Callable[[], Any] = lambda: None
        self._result: Any = None
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, job: Callable[[], Any]) -> None:
        """Begin a job."""
        self._job = job
        self._go.release()

    def finish(self) -> Any:
        """Wait for its result."""
        self._done.acquire()
        return self._result

    def _run(self) -> None:
        torch.set_num_threads(1)
        while True:
            self._go.acquire()
            self._result = self._job()
            self._done.release()


def normed_outermost(torso: ConvolutionalTorso) -> ConvolutionalTorso:
    """Return the torso with PyTorch's LayerNorm, which reads pictures with the channels outermost."""
    for place, layer in enumerate(torso.convolutions):
        if isinstance(layer, NormedPictures):
            height, width, channels = layer.shape
            norm = nn.LayerNorm([channels, height, width])
            torso.convolutions[place] = nn.Sequential(norm, nn.ReLU(inplace=True))
    return torso


def nchw(obs: torch.Tensor) -> torch.Tensor:
    """Return pixels with the channels outermost."""
    return obs.to(torch.float32)


def in_one_step(obs: torch.Tensor) -> torch.Tensor:
    """Return pixels with the channels innermost, widened and reordered by one operation."""
    return obs.to(torch.float32, memory_format=torch.channels_last)


def bytes_first(obs: torch.Tensor) -> torch.Tensor:
    """Return pixels with the channels innermost, interleaved as bytes and widened afterwards."""
    return torch.stack(obs.unbind(1), dim=-1).to(torch.float32).permute(0, 3, 1, 2)
