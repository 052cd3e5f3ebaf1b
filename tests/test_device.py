"""What an update asks of a device, told by one without memory: no number can be read back from `meta`.

A GPU that is asked for a number waits until all that was begun has ended; a GPU that is never asked does not.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.family import ActorParams, act, batch_tensors
from redline.algorithms.named.a2c import A2C
from redline.algorithms.named.ppo import PPO
from redline.algorithms.optimizers import Adam, Optimizer, Radam, Rmsprop
from redline.learner import Learner
from redline.losses import weighted_mean
from redline.networks import Small
from redline.networks.torsos import channels_last
from redline.replay import BatchBuffers, BatchLoader, ReplayConfig, ReplayLayout, ReplayMemory, UniformSampler
from redline.replay.batches import Wait, nothing
from redline.replay.sampler import Prioritized
from redline.runtime.carrier import to_device
from redline.runtime.counters import Counters, Pacing
from redline.runtime.example_batches import Algorithm, example_batch
from redline.runtime.processes.shared import on_host
from redline.runtime.sources import ReplaySource, RolloutSource
from redline.types import AnyBatch, Batch, Draw, EnvSpec, Handles, VectorStep

META, CPU = torch.device("meta"), torch.device("cpu")
PICTURES = EnvSpec("test", (42, 42), "uint8", stack=4, num_actions=3, frames_per_step=4)


def small(name: str) -> Algorithm:
    """Return an algorithm with a small network and small batches."""
    found: Algorithm = replace(ALGORITHMS[name].atari.algorithm, network=Small(width=16), batch_size=32)
    return found


class Uploads(TorchDispatchMode):
    """Counts the copies from the CPU to another device, and all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.bytes, self.operations = 0, 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        given = [arg for arg in args if isinstance(arg, torch.Tensor)]
        source = given[-1] if given else None
        if func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_) and source is not None:
            goes_up = source.device.type == "cpu" and out.device.type == "meta"
            self.count += goes_up
            self.bytes += source.nbytes * goes_up
        return out


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_an_update_reads_nothing_back_and_uploads_only_its_noise(name: str) -> None:
    algorithm, rng = small(name), np.random.default_rng(1)
    learner = Learner(algorithm, PICTURES, seed=1, device=META)
    batch = to_device(example_batch(algorithm, PICTURES, rng), META)
    with Uploads() as uploads:
        for update in range(2):  # the first one diagnoses
            precomputed = learner.precompute_targets([batch])
            learner.update(batch, steps=update, rng=rng, precomputed=precomputed[0])
    networks = 2 if learner.target is not learner.online else 1
    assert uploads.count == (2 * networks if learner.online.is_noisy else 0)


@pytest.mark.filterwarnings("ignore:.*a no-op")  # to load weights where there is no memory
@pytest.mark.parametrize("optimizer", [Adam(), Rmsprop(), Radam()])
def test_a_resumed_optimiser_counts_where_it_reads(optimizer: Optimizer) -> None:
    """The unfused optimisers read their count at every step: on a device, each step would wait for it."""
    algorithm = replace(small("dqn"), optimizer=optimizer)
    saved, resumed = (Learner(algorithm, PICTURES, seed=1, device=device) for device in (CPU, META))
    rng = np.random.default_rng(1)
    saved.update(example_batch(algorithm, PICTURES, rng), steps=0, rng=rng)
    resumed.load_state(saved.state(), updates=1)
    states = [resumed.optimizer.state[parameter] for parameter in resumed.online.parameters()]
    assert {state["step"].device.type for state in states} == {"cpu"}
    assert {state["exp_avg"].device.type for state in states} == {"meta"}
    resumed.update(to_device(example_batch(algorithm, PICTURES, rng), META), steps=1, rng=rng)


@pytest.mark.parametrize("groups", [1, 2])
def test_pictures_are_converted_in_two_kernels_at_most(groups: int) -> None:
    planes = [torch.empty(8, 4, 84, 84, dtype=torch.uint8, device="meta") for _ in range(groups)]
    with Uploads() as seen:
        pixels = channels_last(*planes)
    assert seen.operations <= 2
    assert (pixels.dtype, pixels.shape) == (torch.float32, (8, 4 * groups, 84, 84))
    assert pixels.is_contiguous(memory_format=torch.channels_last)


def test_one_upload_brings_the_noise_of_all_layers_the_same_as_one_for_each() -> None:
    network = small("rainbow").build_network(PICTURES, torch.Generator().manual_seed(1))
    network.resample(np.random.default_rng(7))
    rng = np.random.default_rng(7)
    for layer in network._noisy:
        drawn = torch.from_numpy(rng.standard_normal(layer.in_features + layer.out_features, dtype=np.float32))
        expected = drawn.sign() * drawn.abs().sqrt()
        assert layer._noise is not None
        assert torch.equal(torch.cat(layer._noise), expected)


class Reads(TorchFunctionMode):
    """Counts the downloads."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func is torch.Tensor.cpu
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["dqn", "c51", "ppo"])
def test_acting_waits_for_the_device_once(name: str) -> None:
    algorithm = small(name)
    network = algorithm.build_network(PICTURES, torch.Generator().manual_seed(1))
    obs = np.random.default_rng(1).integers(256, size=(8, 4, 42, 42)).astype(np.uint8)
    with Reads() as reads:
        act(ActorParams(algorithm, network, 0.0, CPU), obs, torch.zeros(8, 0), np.random.default_rng(2))
    assert reads.count == 1


def test_weights_are_published_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    network = small("rainbow").build_network(PICTURES, torch.Generator().manual_seed(1))
    expected = [value.clone() for value in network.state_dict().values()]
    assert all(torch.equal(*pair) for pair in zip(on_host(network.state_dict()), expected, strict=True))
    downloads: list[torch.Tensor] = []

    def download(tensor: torch.Tensor) -> torch.Tensor:
        downloads.append(tensor)
        return torch.cat([value.reshape(-1) for value in expected])

    monkeypatch.setattr(torch.Tensor, "cpu", download)
    found = on_host(network.to("meta").state_dict())
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert len(downloads) == 1


# Copies that end late


class Late:
    """A carrier whose copies are made when somebody waits for them, as a slow device might make them."""

    def __init__(self) -> None:
        self.copies: list[Batch] = []

    def carry(self, batches: Sequence[Batch]) -> tuple[list[Batch], Wait]:
        moved = [_like(batch) for batch in batches]
        self.copies += moved

        waiting = list(zip(batches, moved, strict=True))

        def copy() -> None:
            while waiting:
                batch, copied = waiting.pop()
                for name, tensor in batch_tensors(batch).items():
                    getattr(copied, name).copy_(tensor)

        return moved, copy


def _like(batch: Batch) -> Batch:
    return replace(batch, **{name: torch.zeros_like(value) for name, value in batch_tensors(batch).items()})  # type: ignore[arg-type]


def filled_memory() -> ReplayMemory:
    layout = ReplayLayout(capacity=300, frame_shape=(6, 6), frame_dtype="uint8", stack=4, lanes=1)
    memory, rng = ReplayMemory(layout), np.random.default_rng(1)
    memory.begin(memory.lanes, np.zeros((1, 6, 6), np.uint8))
    for step in range(200):
        frames = rng.integers(256, size=(1, 6, 6)).astype(np.uint8)
        memory.append(
            memory.lanes,
            actions=np.array([step % 3]),
            reward=np.array([step], np.float32),
            return_ends=np.zeros(1, np.bool_),
            episode_ends=np.zeros(1, np.bool_),
            frames=frames,
            first_frames=frames,
        )
    return memory


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("group", [1, 2])
def test_no_buffer_is_filled_again_before_its_copy_has_ended(prefetch: int, group: int) -> None:
    memory, late, rng = filled_memory(), Late(), np.random.default_rng(2)
    sampler = UniformSampler(memory)
    loader: BatchLoader[Batch] = BatchLoader(
        memory,
        make_buffers=lambda: BatchBuffers(memory.layout, batch_size=8),
        gamma=0.99,
        clip_rewards=False,
        prefetch=prefetch,
        group=group,
    )
    expected: list[dict[str, torch.Tensor]] = []
    with closing(loader), closing(memory):
        for _ in range(12):
            while loader.is_short_of(group):
                loader.submit(sampler.draw(rng, 8))
            batches = [batch for _, batch in loader.take(group)]
            expected += [{name: value.clone() for name, value in batch_tensors(batch).items()} for batch in batches]
            _, wait = late.carry(batches)
            loader.hold(wait)
    done = len(expected) - 2 * group  # those of the last groups may still be copied
    for copied, known in list(zip(late.copies, expected, strict=True))[:done]:
        for name, value in batch_tensors(copied).items():
            assert torch.equal(value, known[name]), name


def test_a_replay_source_waits_for_its_carrier() -> None:
    """Each batch is copied only when the source is about to fill its buffers again, and holds what was drawn then."""
    layout = ReplayLayout(capacity=300, frame_shape=(6, 6), frame_dtype="uint8", stack=4, lanes=1)
    algorithm = replace(small("dqn"), batch_size=64, replay=ReplayConfig(capacity=300, prefetch=2))
    sources = [
        ReplaySource(algorithm, layout, pacing=Pacing(samples_per_step=8.0, warmup_steps=1), seed=1, device=CPU)
        for _ in range(2)
    ]
    plain, waiting = sources
    waiting._carrier = late = Late()  # type: ignore[assignment]
    expected: list[dict[str, torch.Tensor]] = []
    try:
        for source in sources:
            source.memory.close()
            source.memory = source.sampler._memory = source.loader._memory = filled_memory()  # type: ignore[attr-defined]
        counters = [Counters(), Counters()]
        for _ in range(60):
            for batch in plain._next_batches(1, counters[0]):
                expected.append({name: value.clone() for name, value in batch_tensors(batch).items()})
            waiting._next_batches(1, counters[1])
    finally:
        for source in sources:
            source.close()
    done = len(expected) - 2 * len(plain.loader._free)  # the last may still be copied
    assert done > 0
    for copied, known in list(zip(late.copies, expected, strict=True))[:done]:
        assert all(torch.equal(value, known[name]) for name, value in batch_tensors(copied).items())


class Counting:
    """A carrier that counts what goes through."""

    def __init__(self) -> None:
        self.carried: list[AnyBatch] = []

    def carry(self, batches: Sequence[AnyBatch]) -> tuple[list[AnyBatch], Wait]:
        self.carried += batches
        return list(batches), nothing


@pytest.mark.parametrize(("algorithm", "reads_pictures"), [(PPO, True), (A2C, False)])
def test_a_rollout_is_uploaded_once_without_what_is_not_read(algorithm: Any, reads_pictures: bool) -> None:
    algorithm = replace(algorithm, network=Small(width=16))
    num_envs, rng = 4, np.random.default_rng(1)
    learner = Learner(algorithm, PICTURES, seed=1, device=CPU)
    source = RolloutSource(algorithm, PICTURES, num_envs=num_envs, seed=1, learner=learner)
    source._carrier = carrier = Counting()
    obs = rng.integers(256, size=(num_envs, 4, 42, 42)).astype(np.uint8)
    params = ActorParams(algorithm, learner.online, 0.0, CPU, keeps_features=source.keeps_features)
    nothing = np.zeros(num_envs, np.bool_)
    step = VectorStep(obs[:, -1], np.ones(num_envs, np.float32), nothing, nothing, nothing, obs[:, -1])
    for _ in range(algorithm.rollout_steps):
        actions, _, extras = act(params, obs, torch.zeros(num_envs, 0), rng)
        source.append(obs=obs, actions=actions, extras=extras, step=step, next_obs=obs)
    learnt = [learner.update(batch, steps=0, rng=rng) for (batch,) in source.batches_due(Counters())]
    assert len(learnt) == algorithm.epochs * source._num_batches
    (whole,) = carrier.carried
    rows = algorithm.rollout_steps * num_envs
    assert whole.obs.shape[0] == (rows if reads_pictures else 0)  # type: ignore[union-attr]
    assert len(whole.action) == rows


# Readiness for a CUDA graph


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo does that itself
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_loss_is_one_graph(name: str) -> None:
    """A graph that dynamo takes in whole has no step that depends on a number on the device."""
    algorithm, rng = small(name), np.random.default_rng(1)
    learner = Learner(algorithm, PICTURES, seed=1, device=META)
    batch = to_device(example_batch(algorithm, PICTURES, rng), META)
    if learner.online.is_noisy:
        learner.online.resample(rng)
        learner.target.resample(rng)

    def loss(batch: AnyBatch) -> torch.Tensor:
        losses, weights, _ = algorithm.losses(batch, stack=4, online=learner.online, target=learner.target, steps=0)
        return weighted_mean(losses, weights)

    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    compiled(batch).backward()  # type: ignore[no-untyped-call]
    torch._dynamo.reset()  # type: ignore[no-untyped-call]


def test_late_priorities_count_one_draw_later_and_in_their_order() -> None:
    algorithm = replace(small("prioritized-dqn"), batch_size=4, replay=ReplayConfig(capacity=100))
    layout = ReplayLayout(capacity=100, frame_shape=(42, 42), frame_dtype="uint8", stack=4, lanes=1)
    for late, expected in ((False, [[0], [1], [2]]), (True, [[], [0], [1]])):
        chosen = replace(algorithm, sample=Prioritized(late=late))
        pacing = Pacing(samples_per_step=8.0, warmup_steps=1)
        with closing(ReplaySource(chosen, layout, pacing=pacing, seed=1, device=CPU)) as source:
            found = []
            for update in range(3):
                source._drawn = [Draw(Handles(np.zeros(4, np.int64), np.full(4, update)), np.ones(4, np.float32))]
                due = source.exchange_priorities(torch.full((4,), float(update)))
                found.append([int(sizes[0]) for handles, sizes in due if (handles.number == sizes).all()])
            assert found == expected
