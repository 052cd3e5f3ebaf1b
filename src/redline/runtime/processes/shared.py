"""What the processes of a run share: numbers that they show each other, the weights, and the rings of the lanes.

Each number is written by one process only. Heartbeats are the exception: a supervisor that was suspended itself renews
them, since all processes may have been. An actor hands its episodes to the learner through the rings, as letters.
"""

from __future__ import annotations

import math
import os
import select
import struct
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch

from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.episodes.episode import num_checks
from redline.errors import UserError
from redline.replay import available_bytes
from redline.replay.backing import MARGIN_BYTES, SharedBlock
from redline.replay.shared_lanes import BY_EPISODE, IN_CHUNKS, LOCKSTEP, STEP_BY_STEP, UNPACED, PushRule, SharedLanes
from redline.runtime.actor import Episode
from redline.runtime.config import Job
from redline.runtime.counters import Counters, Scores
from redline.types import Array, EnvSpec
from redline.units import size

T = TypeVar("T")

LEARNER, EVALUATOR, FIRST_ACTOR = 0, 1, 2  # slots
WAITS = ("learner", "actors", "gather", "envs", "rest")  # reasons for which a process may wait
STARTING_S = 90.0  # in which a process must show its first heartbeat, and envs must have started
BEAT_INTERVAL_S = 0.25  # a waiting process shows a heartbeat at least this often

RECORD_BYTES = 64  # beside the frame, at most
STEP_RULES = {"lockstep": LOCKSTEP, "held": STEP_BY_STEP, "free": UNPACED}
SLOTS = 3  # versions of the weights
LARGEST_BYTES = 1024**2  # of a letter: holds Atari's longest episode with the values of all 18 actions
SHORT_BYTES = 1_024  # holds a short episode, or a long one's header and description

_LETTER = struct.Struct("<dqqq?")  # return, length, key seed, key offset, whether it was truncated; the trace follows

Tensors = Mapping[str, torch.Tensor]


class Doorbell:
    """Wakes a process that waits: a counter in the kernel. A ring that comes while nobody waits is kept."""

    def __init__(self, descriptor: int = -1) -> None:
        if descriptor < 0:
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.close = weakref.finalize(self, os.close, descriptor)

    def ring(self) -> None:
        """Wake the process that waits, or make its next wait end at once."""
        with suppress(BlockingIOError):  # the counter is full: it rings already
            os.eventfd_write(self._descriptor, 1)

    def wait(self, timeout_s: float) -> None:
        """Return when it has rung since the last wait, or when the time is over."""
        if self._poll.poll(timeout_s * 1000):
            with suppress(BlockingIOError):
                os.eventfd_read(self._descriptor)

    def __reduce__(self) -> tuple[Callable[..., Doorbell], tuple[Any, ...]]:
        """Let a process that is being started have the same bell."""
        return attach, (Doorbell, DupFd(self._descriptor))


def attach(kind: Callable[[int], T], descriptor: Any) -> T:
    """Return what `kind` makes of a descriptor that another process sent."""
    return kind(descriptor.detach())


class Cell(Generic[T]):
    """A number in one of the shared arrays of a status; reads as an attribute."""

    def __init__(self, array: str, index: int, kind: Callable[[Any], T]) -> None:
        self._array, self._index, self._kind = array, index, kind

    def __get__(self, status: Any, _: object = None) -> T:
        return self._kind(getattr(status, self._array)[self._index])


class SharedStatus:
    """Cells in shared memory, with a slot per process; a store of eight bytes is atomic."""

    is_stopped = Cell("_orders", 0, bool)  # all processes are to end
    saves_ordered = Cell("_orders", 1, int)  # checkpoints, so far
    sync_answered = Cell("_orders", 2, int)  # number of the newest request to sync the run's files that was answered
    sync_failed = Cell("_orders", 3, int)  # number of the newest such request that failed
    is_finishing = Cell("_orders", 4, bool)  # the newest order is for the last checkpoint
    run_steps = Cell("_progress", 0, int)  # of the run that count: those in the replay memory
    run_updates = Cell("_progress", 1, int)  # of the run

    def __init__(self, actors: int) -> None:
        slots = FIRST_ACTOR + actors
        fields = {
            "orders": ((8,), "int64"),  # the supervisor's
            "results": ((8,), "float64"),  # the supervisor's
            "progress": ((8,), "int64"),  # the learner's
            "beat_s": ((slots, 8), "float64"),
            "steps": ((slots, 8), "int64"),
            "age": ((slots, 8), "float64"),
            "waited_s": ((slots, len(WAITS)), "float64"),
        }
        self._block = SharedBlock("redline-status", fields)
        self.bells = [Doorbell() for _ in range(slots)]
        self._map()

    def _map(self) -> None:
        block = self._block
        self._orders, self._results, self._progress = block["orders"], block["results"], block["progress"]
        self.beat_s: Array = block["beat_s"][:, 0]  # [slots] monotonic time of the newest heartbeat
        self.steps: Array = block["steps"][:, 0]  # [slots] played there, ever
        self.age_updates: Array = block["age"]  # [slots, 2 …] sum of the ages of weights, and their count
        self.waited_s: Array = block["waited_s"]  # [slots, WAITS]

    def __getstate__(self) -> tuple[SharedBlock, list[Doorbell]]:
        return self._block, self.bells

    def __setstate__(self, state: tuple[SharedBlock, list[Doorbell]]) -> None:
        self._block, self.bells = state
        self._map()

    # Orders of the supervisor

    def stop(self) -> None:
        self._orders[0] = 1
        for bell in self.bells:
            bell.ring()

    def order_save(self, *, is_last: bool = False) -> None:
        """Order a checkpoint from the learner; after the last one it learns nothing more."""
        self._orders[1] += 1
        self._orders[4] = is_last  # written last: a reader that sees it sees the order
        self.bells[LEARNER].ring()

    def answer_sync(self, number: int, *, is_safe: bool) -> None:
        """Tell the learner whether the rows that it sent before a request are on the disk."""
        if not is_safe:
            self._orders[3] = number
        self._orders[2] = number
        self.bells[LEARNER].ring()

    # Results of evaluations: the learner's checkpoints keep them

    def show_evaluations(self, counters: Counters, scores: Scores) -> None:
        """Show the learner the results of the evaluations so far."""
        returns = scores.greedy_return, scores.confirmed_return, scores.solved_target
        known = [math.nan if value is None else value for value in returns]
        self._results[1:6] = counters.evaluated_steps, *known, counters.solved_s
        self._results[0] = counters.evaluations  # written last: a reader that sees it sees the rest

    def read_evaluations(self, counters: Counters, scores: Scores) -> None:
        """Take over results that are newer."""
        number, steps, *returns, solved_s = self._results[:6].tolist()
        if number > counters.evaluations:
            counters.evaluations, counters.evaluated_steps, counters.solved_s = int(number), int(steps), solved_s
            known = [None if math.isnan(value) else value for value in returns]
            scores.greedy_return, scores.confirmed_return, scores.solved_target = known

    # Progress of the learner

    def show_progress(self, *, steps: int, updates: int) -> None:
        """Show all processes how far the run is."""
        self._progress[0] = steps
        self._progress[1] = updates


class Slot:
    """The slot of one process: shows its heartbeat, and what it waits for."""

    def __init__(self, status: SharedStatus, index: int) -> None:
        self.status = status
        self.index = index
        self.bell = status.bells[index]

    def beat(self, silent_for_s: float = 0.0) -> None:
        """Show a heartbeat, and how long the next may take."""
        self.status.beat_s[self.index] = time.monotonic() + silent_for_s

    def wait_until(self, is_true: Callable[[], bool], *, on: str, timeout_s: float | None = None) -> bool:
        """Wait until a condition holds, which a process rings the bell for; False on a timeout or if the run ends."""
        begun_s = last_s = time.monotonic()
        column = WAITS.index(on)
        while not (found := is_true()) and not self.status.is_stopped:
            if timeout_s is not None and last_s - begun_s >= timeout_s:
                break
            left_s = BEAT_INTERVAL_S if timeout_s is None else min(BEAT_INTERVAL_S, timeout_s - (last_s - begun_s))
            self.bell.wait(left_s)
            now_s = time.monotonic()
            self.status.waited_s[self.index, column] += now_s - last_s
            # a longer silence may be allowed
            self.status.beat_s[self.index] = max(now_s, self.status.beat_s[self.index])
            last_s = now_s
        return found

    @contextmanager
    def waiting(self, on: str) -> Iterator[None]:
        """Count the time of a block as waiting."""
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self.status.waited_s[self.index, WAITS.index(on)] += time.monotonic() - begun_s

    def played(self, steps: int) -> None:
        self.status.steps[self.index] += steps

    def acted_with(self, weights_updates: int) -> None:
        """Count by how many updates the weights that act here lag behind."""
        self.status.age_updates[self.index, :2] += (max(0, self.status.run_updates - weights_updates), 1)


# Weights


@dataclass(frozen=True)
class Version:
    """Which weights these are."""

    number: int
    updates: int  # that made them
    steps: int  # of the run when they were published


def on_host(weights: Tensors) -> list[torch.Tensor]:
    """Return tensors of one type on the CPU; from a GPU in one copy, for each waits for all that is computed."""
    tensors = [value.detach() for value in weights.values()]
    if all(value.device.type == "cpu" for value in tensors):
        return tensors
    flat = torch.cat([value.reshape(-1) for value in tensors]).cpu()
    parts = flat.split_with_sizes([value.numel() for value in tensors])
    return [part.view(value.shape) for part, value in zip(parts, tensors, strict=True)]


class SharedWeights:
    """The newest weights of a network, in shared memory; writer and readers never wait for each other.

    Versions go round in a few slots. A reader copies the newest, and copies again if the writer has come round to its
    slot meanwhile. A writer that dies leaves the earlier versions as they were.
    """

    def __init__(self, example: Tensors, *, readers: int) -> None:
        num_bytes = sum(_padded(tensor) for tensor in example.values())
        fields = {
            "newest": ((8,), "int64"),
            "wanted": ((readers, 8), "int64"),
            "facts": ((SLOTS, 2), "int64"),
            "data": ((SLOTS, num_bytes), "uint8"),
        }
        self._map(SharedBlock("redline-weights", fields))

    def _map(self, block: SharedBlock) -> None:
        self._block = block
        self._newest: Array = block["newest"]
        self._wanted: Array = block["wanted"][:, 0]  # [readers] the version that a reader asks for
        self._facts, self._data = block["facts"], block["data"]

    def __getstate__(self) -> SharedBlock:
        return self._block

    def __setstate__(self, block: SharedBlock) -> None:
        self._map(block)

    @property
    def number(self) -> int:
        """Number of the newest version; 0 before the first."""
        return int(self._newest[0])

    @property
    def is_wanted(self) -> bool:
        """Whether a reader asks for a newer version."""
        return bool(self._wanted.max() > self.number)

    def ask(self, reader: int) -> None:
        self._wanted[reader] = self.number + 1

    def publish(self, weights: Tensors, *, updates: int, steps: int) -> None:
        """Make these the newest version."""
        number = self.number + 1
        for view, value in zip(self._views(number % SLOTS, weights), on_host(weights), strict=True):
            view.copy_(value)
        self._facts[number % SLOTS] = updates, steps
        self._newest[0] = number  # written last: the version is complete

    def read(self, into: Tensors) -> Version:
        """Copy the newest version into tensors of the same shapes."""
        while True:
            number = self.number
            for view, target in zip(self._views(number % SLOTS, into), into.values(), strict=True):
                target.copy_(view)
            updates, steps = self._facts[number % SLOTS].tolist()
            if self.number < number + SLOTS - 1:  # else the slot may have been overwritten meanwhile
                return Version(number, updates, steps)

    def _views(self, slot: int, like: Tensors) -> list[torch.Tensor]:
        views, start = [], 0
        for tensor in like.values():
            part = torch.from_numpy(self._data[slot, start : start + tensor.nbytes])
            views.append(part.view(tensor.dtype).view(tensor.shape))
            start += _padded(tensor)
        return views


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.nbytes // 64) * 64


# Rings and the letters that go through them


def encode_letter(episode: Episode) -> bytes:
    """Return an episode as bytes; its lane is the ring's."""
    numbers = episode.total_reward, episode.length_steps, episode.reset_seed, episode.seed_offset_steps
    return _LETTER.pack(*numbers, episode.is_truncated) + (episode.trace or b"")


def decode_letter(letter: bytes, lane: int) -> Episode:
    """Return the episode of a letter by `encode_letter`."""
    total, length_steps, reset_seed, seed_offset_steps, is_truncated = _LETTER.unpack_from(letter)
    trace = letter[_LETTER.size :] or None
    return Episode(lane, total, length_steps, reset_seed, seed_offset_steps, trace, is_truncated)


def mail_bytes(job: Job, spec: EnvSpec, *, depth: int) -> int:
    """Return the size of a lane's mailbox: two of the largest letters, or the short episodes of a full ring."""
    if job.recording.is_off:
        return 2 * depth * _LETTER.size
    longest = -(-job.env.max_episode_frames // spec.frames_per_step)
    # a record holds the actions since the record before it, or since the key
    actions = longest if job.recording.record == "all" else SEED_INTERVAL_STEPS + longest
    packed = actions * (1 if spec.num_actions <= 256 else 4)
    if job.recording.record_values:
        packed += longest * spec.num_actions * 2
    packed += packed // 1_000  # zlib makes what it can't compress a little larger
    largest = min(SHORT_BYTES + 8 * num_checks(longest) + packed, LARGEST_BYTES)
    return 2 * max(largest, depth // 2 * SHORT_BYTES)


def check_rings(job: Job, spec: EnvSpec) -> None:
    """Refuse rings that the machine has no room for, before they are reserved."""
    record_bytes = math.prod(spec.frame_shape) * np.dtype(spec.frame_dtype).itemsize + RECORD_BYTES
    depth = _push_rule(job).depth
    needed = job.num_envs * (depth * record_bytes + mail_bytes(job, spec, depth=depth))
    if needed > available_bytes() - MARGIN_BYTES:
        raise UserError(
            f"the rings of {job.num_envs} envs need {size(needed)} with --push {job.push}, "
            f"{size(available_bytes())} is free: use --push step, fewer envs, or --record off"
        )


def _push_rule(job: Job) -> PushRule:
    if job.push == "step":
        return STEP_RULES[job.pacing]
    return IN_CHUNKS if job.push == "chunk" else BY_EPISODE


@dataclass(frozen=True)
class SharedParts:
    """Memory without a name, which the kernel frees with the last process that maps it."""

    status: SharedStatus
    lanes: SharedLanes
    weights: SharedWeights

    @classmethod
    def for_job(cls, job: Job, spec: EnvSpec) -> Self:
        """Make the shared memory for a resolved job."""
        rule = _push_rule(job)
        example = job.algorithm.build_network(spec, torch.Generator().manual_seed(0)).state_dict()
        return cls(
            status=SharedStatus(job.actors),
            lanes=SharedLanes(
                job.num_envs,
                spec.frame_shape,
                spec.frame_dtype,
                rule=rule,
                mail_bytes=mail_bytes(job, spec, depth=rule.depth),
            ),
            weights=SharedWeights(example, readers=FIRST_ACTOR + job.actors),
        )
