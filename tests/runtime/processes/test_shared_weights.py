"""Shared weights: what is read is what was published, all of it, whatever the writer does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
import torch
from child_work import PATIENCE_S, StartChild, ask_and_read, filled, look_until, publish_for_ever

from redline.algorithms.catalog import ALGORITHMS
from redline.networks import Network
from redline.runtime.processes.shared import SLOTS, SharedWeights, Version
from redline.types import EnvSpec

VECTORS = EnvSpec("test", (4,), "float32", stack=1, num_actions=2, frames_per_step=1)
PICTURES = EnvSpec("test", (84, 84), "uint8", stack=4, num_actions=6, frames_per_step=4)
SHAPES: dict[str, tuple[int, ...]] = {
    "torso": (400, 60),
    "bias": (7,),
    "scale": (),
    "head": (90, 400),
    "kernel": (16, 4, 5, 5),
}
KILLS = 12


def networks(name: str, spec: EnvSpec) -> tuple[Network, Network]:
    """Return two networks of an algorithm that differ in all weights."""
    preset = ALGORITHMS[name].atari if spec.is_image else ALGORITHMS[name].classic
    first, second = (preset.algorithm.build_network(spec, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.25)  # biases and noise too
    return first, second


def publish(weights: SharedWeights, number: int) -> None:
    weights.publish(filled(SHAPES, number), updates=number * 2, steps=number * 3)


def version_in(tensors: dict[str, torch.Tensor]) -> int:
    """Return the number that fills all tensors, after checking that one does."""
    values = {value for tensor in tensors.values() for value in np.unique(tensor.numpy()).tolist()}
    assert len(values) == 1
    return int(values.pop())


@pytest.mark.parametrize("spec", [VECTORS, PICTURES], ids=["vectors", "pictures"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_network_that_reads_what_another_published_answers_as_that_does(name: str, spec: EnvSpec) -> None:
    learner, actor = networks(name, spec)
    weights = SharedWeights(actor.state_dict(), readers=1)
    weights.publish(learner.state_dict(), updates=70, steps=900)
    assert weights.read(actor.state_dict()) == Version(1, 70, 900)
    for key, value in actor.state_dict().items():
        assert torch.equal(value, learner.state_dict()[key])
        assert value.stride() == learner.state_dict()[key].stride()
    obs = torch.from_numpy(np.random.default_rng(1).integers(0, 255, (3, spec.stack, *spec.frame_shape)))
    obs = obs.to(torch.uint8 if spec.is_image else torch.float32)
    state = torch.full((3, actor.state_width), 0.5)
    for network in (learner, actor):
        if network.is_noisy:
            network.resample(np.random.default_rng(2))
    with torch.no_grad():
        for theirs, ours in zip(learner.step(obs, state), actor.step(obs, state), strict=True):
            assert torch.equal(theirs, ours)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64, torch.uint8, torch.int32, torch.int64, torch.bool], ids=str
)
def test_tensors_of_any_kind_and_layout_come_as_they_were(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        return (torch.rand(shape, generator=generator) * 100 - (0 if dtype == torch.uint8 else 50)).to(dtype)

    published = {
        "dense": drawn(5, 3),
        "scalar": drawn(),
        "none": drawn(0, 4),
        "transposed": drawn(7, 5).T,
        "every other": drawn(9, 4)[::2],
        "channels last": drawn(2, 3, 5, 4).contiguous(memory_format=torch.channels_last),
        "one more": drawn(1),
    }
    into = {name: torch.zeros_like(value) for name, value in published.items()}
    into["transposed"] = torch.zeros(5, 7, dtype=dtype)  # the reader's own layout
    into["dense"] = torch.zeros(3, 5, dtype=dtype).T
    strides = {name: value.stride() for name, value in into.items()}
    weights = SharedWeights(published, readers=1)
    weights.publish(published, updates=1, steps=1)
    weights.read(into)
    assert all(torch.equal(into[name], value) for name, value in published.items())
    assert {name: value.stride() for name, value in into.items()} == strides


def test_the_newest_version_is_read_and_says_which_it_is() -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=1)
    assert weights.number == 0
    into = filled(SHAPES, -1.0)
    for number in range(1, 3 * SLOTS):
        publish(weights, number)
        for _ in range(2):
            assert weights.read(into) == Version(number, number * 2, number * 3)
            assert version_in(into) == weights.number == number


class WriterDiedError(Exception):
    """Stands for a kill."""


class Torn(dict[str, torch.Tensor]):
    """Tensors of which a writer publishes some and then dies."""

    def __init__(self, tensors: dict[str, torch.Tensor], after: int) -> None:
        super().__init__(tensors)
        self._after = after
        self._passes = 0

    def values(self) -> Iterator[torch.Tensor]:  # type: ignore[override]
        self._passes += 1
        if self._passes == 1:  # over the shapes
            return iter(super().values())
        return self._some()

    def _some(self) -> Iterator[torch.Tensor]:
        yield from list(super().values())[: self._after]
        raise WriterDiedError


class Overtaken(dict[str, torch.Tensor]):
    """Tensors to read into; after the first the writer publishes more versions, and begins another."""

    def __init__(self, weights: SharedWeights, versions: int) -> None:
        super().__init__(filled(SHAPES, -1.0))
        self._weights = weights
        self._versions = versions

    def values(self) -> Iterator[torch.Tensor]:  # type: ignore[override]
        for position, tensor in enumerate(super().values()):
            yield tensor
            if position == 0 and (tensor != -1.0).all():
                self._publish()

    def _publish(self) -> None:
        for _ in range(self._versions):
            publish(self._weights, self._weights.number + 1)
        if self._versions:
            with suppress(WriterDiedError):
                self._weights.publish(Torn(filled(SHAPES, 99.0), len(SHAPES)), updates=99, steps=99)
        self._versions = 0


@pytest.mark.parametrize("before", range(1, 1 + SLOTS))
@pytest.mark.parametrize("meanwhile", range(2 * SLOTS))
def test_a_reader_whom_the_writer_overtakes_reads_again(before: int, meanwhile: int) -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=1)
    for number in range(1, before + 1):
        publish(weights, number)
    into = Overtaken(weights, meanwhile)
    version = weights.read(into)
    assert weights.number == before + meanwhile
    assert version_in(dict(into)) == version.number
    assert (version.updates, version.steps) == (version.number * 2, version.number * 3)
    assert version.number in (before, weights.number)


@pytest.mark.parametrize("after", range(len(SHAPES) + 1))
def test_a_writer_that_dies_midway_leaves_the_version_before(after: int) -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=1)
    for number in range(1, SLOTS + 2):
        publish(weights, number)
    with pytest.raises(WriterDiedError):
        weights.publish(Torn(filled(SHAPES, 99.0), after), updates=99, steps=99)
    into = filled(SHAPES, -1.0)
    assert weights.read(into) == Version(SLOTS + 1, (SLOTS + 1) * 2, (SLOTS + 1) * 3)
    assert version_in(into) == SLOTS + 1


def check_reads(weights: SharedWeights, seconds: float) -> int:
    """Read again and again for a while; return how many versions were seen."""
    into = filled(SHAPES, -1.0)
    seen: set[int] = set()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s or len(seen) < 2:
        version = weights.read(into)
        assert version_in(into) == version.number
        assert (version.updates, version.steps) == (version.number * 2, version.number * 3)
        seen.add(version.number)
    return len(seen)


def test_a_reader_never_sees_parts_of_two_versions(start_child: StartChild) -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=1)
    start_child(publish_for_ever, weights, SHAPES)
    look_until(lambda: weights.number > SLOTS)
    assert check_reads(weights, seconds=2.0) > 10


def test_writers_that_are_killed_leave_whole_versions(start_child: StartChild) -> None:
    rng = np.random.default_rng(1)
    weights = SharedWeights(filled(SHAPES, 0.0), readers=1)
    for _ in range(KILLS):
        before = weights.number
        writer = start_child(publish_for_ever, weights, SHAPES)
        look_until(lambda before=before: weights.number > before + SLOTS)  # type: ignore[misc]
        time.sleep(float(rng.uniform(0.0, 0.01)))
        writer.kill()
        writer.join()
        into = filled(SHAPES, -1.0)
        version = weights.read(into)
        assert version_in(into) == version.number == weights.number
        assert (version.updates, version.steps) == (version.number * 2, version.number * 3)


def test_weights_are_wanted_until_a_version_comes_that_is_newer_than_when_they_were_asked_for() -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=3)
    assert not weights.is_wanted
    weights.ask(1)
    assert weights.is_wanted
    publish(weights, 1)
    assert not weights.is_wanted
    weights.ask(2)
    weights.ask(0)
    weights.ask(2)  # again, because nothing came
    assert weights.is_wanted
    publish(weights, 2)
    assert not weights.is_wanted  # one version serves all who asked


def test_a_reader_that_never_asks_is_not_waited_for_and_gets_what_there_is() -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=2)
    for number in range(1, 10):
        publish(weights, number)
        assert not weights.is_wanted
    into = filled(SHAPES, -1.0)
    assert weights.read(into).number == 9


def test_asking_in_one_process_is_seen_in_another(start_child: StartChild) -> None:
    weights = SharedWeights(filled(SHAPES, 0.0), readers=2)
    publish(weights, 1)
    child = start_child(ask_and_read, weights, SHAPES, 1)
    look_until(lambda: weights.is_wanted)
    publish(weights, 2)
    child.join(PATIENCE_S)
    assert child.exitcode == 0
