"""Batches from a replay memory: drawn by the learner, a fixed number of updates ahead, whatever the actor does."""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from redline.algorithms.family import ActorExtras
from redline.algorithms.q_learning import QLearning
from redline.algorithms.samplings import Uniform
from redline.errors import UserError
from redline.experience import (
    BatchBuffers,
    BatchLoader,
    ReplayLayout,
    ReplayMemory,
    SequenceBuffers,
    restore_memory,
    take_snapshot,
    with_burn_in,
    without_damage,
)
from redline.runs.checkpoints import CheckpointStore
from redline.runs.manifest import Checkpoint
from redline.runtime.counters import Counters
from redline.runtime.pacing import Pacing
from redline.runtime.randomness import Purpose, stream
from redline.runtime.sources import SavedSource, part_of, prefixed
from redline.types import AnyBatch, Array, Batch, Draw, Handles, IntArray, SequenceBatch, VectorStep

ROWS_IN_A_PASS = 128  # of the target network: beyond, a row costs no less


class ReplaySource:
    """A replay memory, who draws from it, and who gathers what was drawn."""

    learns_before_acting = False  # what is learnt is old anyway, so the envs need not wait for it
    keeps_features = False
    entropy_nats: float | None = None  # values are no policy

    def __init__(
        self, algorithm: QLearning, layout: ReplayLayout, *, pacing: Pacing, seed: int, device: torch.device
    ) -> None:
        self._algorithm = algorithm
        self._seed = seed
        self._sequence = algorithm.core.sequence()
        self._rows = algorithm.batch_size // (self._sequence.length_steps if self._sequence else 1)
        self.memory = ReplayMemory(layout)
        self.pacing = pacing
        self.waited_s = 0.0
        self.sampler = algorithm.sample.build(self.memory)
        self.loader: BatchLoader[Batch | SequenceBatch] = BatchLoader(
            self.memory,
            make_buffers=lambda: self._make_buffers(pin_memory=device.type == "cuda"),
            gamma=algorithm.returns.gamma,
            clip_rewards=algorithm.returns.clip_rewards,
            prefetch=algorithm.replay.prefetch,
            group=largest_group(algorithm),
        )
        self._drawn: list[Draw] = []  # of the batches that are being learnt from

    @property
    def take_priorities(self) -> Callable[[Array], None] | None:
        """Takes the priorities of the last batch, if the sampler wants them."""
        return self._take_priorities if self.sampler.wants_priorities else None

    def _make_buffers(self, *, pin_memory: bool) -> BatchBuffers | SequenceBuffers:
        layout, n_steps = self.memory.layout, self._algorithm.returns.n
        if self._sequence is None:
            return BatchBuffers(layout, batch_size=self._rows, n_steps=n_steps, pin_memory=pin_memory)
        return SequenceBuffers(
            layout,
            batch_size=self._rows,
            burn_in=self._sequence.burn_in_steps,
            length=self._sequence.length_steps,
            n_steps=n_steps,
            pin_memory=pin_memory,
        )

    def begin(self, first_frames: Array) -> None:
        """Start an episode in every lane, and keep what cut ones brought."""
        self.memory.cut(self.memory.lanes)
        self.memory.begin(self.memory.lanes, first_frames)

    def batches_due(self, counters: Counters) -> Iterator[Sequence[AnyBatch]]:
        """Yield the batches that the steps played so far have earned."""
        if self.memory.num_sampleable == 0:
            return
        due = self.pacing.updates_due(
            steps=counters.steps,
            samples=counters.samples,
            batch_size=self._algorithm.batch_size,
            since=(counters.free_steps, counters.free_samples),
        )
        while due > 0:
            group = self._next_batches(min(due, largest_group(self._algorithm)), counters)
            yield group
            due -= len(group)

    def _next_batches(self, count: int, counters: Counters) -> list[Batch | SequenceBatch]:
        """Draw exactly `prefetch` updates ahead, and return the batches whose turn it is."""
        while self.loader.is_short_of(count):
            rng = stream(self._seed, Purpose.DRAW, counters.batches_drawn)
            draw = self.sampler.draw(rng, self._rows, beta=self._algorithm.sample.beta_at(counters.steps))
            if self._sequence is not None:
                draw = with_burn_in(self.memory, draw, self._sequence.burn_in_steps)
            self.loader.submit(draw)
            counters.batches_drawn += 1
        begun_s = time.monotonic()
        taken = self.loader.take(count)
        self.waited_s += time.monotonic() - begun_s
        self._drawn = [draw for draw, _ in taken]
        return [batch for _, batch in taken]

    def num_samples(self, batch: AnyBatch) -> int:
        """Return the batch size: transitions that are learnt from, padding of short sequences included."""
        return self._algorithm.batch_size

    def _take_priorities(self, priorities: Array) -> None:
        (draw,) = self._drawn
        self.sampler.update(draw.handles, priorities)

    def append(self, *, obs: Array, actions: IntArray, extras: ActorExtras, step: VectorStep, next_obs: Array) -> None:
        """Keep a step of all lanes; frames are kept once, so observations are not."""
        self.memory.append(
            self.memory.lanes,
            actions=actions,
            reward=step.reward,
            return_ends=step.return_ends,
            episode_ends=step.ended,
            frames=step.frames,
            first_frames=step.first_frames,
        )

    def save(self, store: CheckpointStore) -> SavedSource:
        """Return the memory, the sampler and what was drawn ahead."""
        replay = take_snapshot(self.memory, store.segments.append)
        arrays = {
            **prefixed("replay", replay.arrays),
            **prefixed("sampler", self.sampler.state()),
            **prefixed("draws", _draws_to_arrays(self.loader.pending)),
        }
        return SavedSource(arrays, replay.manifest)

    def restore(
        self,
        checkpoint: Checkpoint,
        arrays: dict[str, Array],
        store: CheckpointStore,
        *,
        first_frames: Array | None,
    ) -> list[str]:
        """Bring memory, sampler and what was drawn ahead back."""
        lost: list[str] = []
        if checkpoint.replay is None:
            raise UserError(f"{checkpoint.path} holds no replay memory: it is not a checkpoint of such a run")
        replay, num_damaged = without_damage(checkpoint.replay, checkpoint.damaged_replay)
        if num_damaged:
            lost.append(
                f"{num_damaged:,} transitions of the saved replay are damaged, or older than such, and left out"
            )
        restore_memory(self.memory, replay, part_of("replay", arrays), store.segments.read)
        self.sampler.load_state(part_of("sampler", arrays))
        if first_frames is not None:
            self.begin(first_frames)
        return lost + self._restore_draws(checkpoint, arrays)

    def _restore_draws(self, checkpoint: Checkpoint, arrays: dict[str, Array]) -> list[str]:
        """Queue again what was drawn ahead, if it still means the same."""
        lost: list[str] = []
        saved, layout, frame_bytes = checkpoint.replay or {}, self.memory.layout, self.memory.frames.budget_bytes
        same_size = (saved["capacity"], saved["codec"], saved["frame_budget_bytes"]) == (
            layout.capacity,
            layout.effective_codec,
            frame_bytes,
        )
        if saved["budget_bytes"] == layout.budget_bytes and saved["frame_budget_bytes"] != frame_bytes:
            lost.append("the machine had less memory to spare for the replay than now, or more")
        draws = _draws_from_arrays(part_of("draws", arrays))
        as_configured = len(draws) in (0, self.loader.prefetch) and all(
            len(draw.weight) == self._rows for draw in draws
        )
        as_configured &= same_size or not draws  # a smaller memory may evict a row before its turn
        if as_configured and all(self._is_held(draw) for draw in draws):
            for draw in draws:
                self.loader.submit(draw)
            return lost
        return [*lost, f"{len(draws)} batches drawn ahead are drawn anew"]

    def _is_held(self, draw: Draw) -> bool:
        """Tell whether all rows that were drawn, and the steps before them that warm a state up, can be read."""
        before = draw.handles.number - (0 if draw.burn_in is None else draw.burn_in)
        earliest = Handles(draw.handles.lane, before)
        return bool((self.memory.is_resident(draw.handles) & self.memory.is_resident(earliest)).all())

    def close(self) -> None:
        """End the gathering thread and give the memory back."""
        self.loader.close()
        self.memory.close()


def largest_group(algorithm: QLearning) -> int:
    """Return how many batches are drawn at once at most: one where the next draw waits for priorities."""
    if not isinstance(algorithm.sample, Uniform) or algorithm.core.sequence() is not None:
        return 1
    return max(1, ROWS_IN_A_PASS // algorithm.batch_size)


def _draws_to_arrays(draws: list[Draw]) -> dict[str, Array]:
    def stacked(rows: list[Array], dtype: str) -> Array:
        return np.stack(rows) if rows else np.zeros((0, 0), dtype=dtype)

    arrays = {
        "lane": stacked([draw.handles.lane for draw in draws], "int64"),
        "number": stacked([draw.handles.number for draw in draws], "int64"),
        "weight": stacked([draw.weight for draw in draws], "float32"),
    }
    burn_ins = [draw.burn_in for draw in draws if draw.burn_in is not None]
    aheads = [draw.ahead for draw in draws if draw.ahead is not None]
    return arrays | {"burn_in": np.stack(burn_ins), "ahead": np.stack(aheads)} if burn_ins else arrays


def _draws_from_arrays(arrays: dict[str, Array]) -> list[Draw]:
    columns = [arrays["lane"], arrays["number"], arrays["weight"]]
    if "burn_in" in arrays:
        columns += [arrays["burn_in"], arrays["ahead"]]
    return [Draw(Handles(lane, number), *rest) for lane, number, *rest in zip(*columns, strict=True)]
