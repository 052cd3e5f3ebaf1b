"""A replay memory that is obvious: every episode a list, every window cut from it one row at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redline.replay import BatchBuffers, ReplayLayout, ReplayMemory, gather
from redline.replay.frames import FlatFrames, PackedFrames
from redline.types import Array, Batch, Draw, Handles, IntArray

FRAME_SHAPE = (3,)
LARGE_FRAME_SHAPE = (350, 3)  # large enough that the pool has no room for a final frame per transition
NOISE = np.random.default_rng(0).integers(1, 256, (61, *LARGE_FRAME_SHAPE), np.uint8)


def stamp(lane: int, episode: int, step: int, layout: ReplayLayout | None = None) -> Array:
    """Return a frame that says where it belongs and is never zero; of uint8 and small without a layout.

    A large one is noise below its first row, so that no codec makes it smaller.
    """
    shape, dtype = (layout.frame_shape, layout.frame_dtype) if layout else (FRAME_SHAPE, "uint8")
    mark = np.array([lane + 1, episode % 250 + 1, step % 250 + 1], dtype)
    if len(shape) == 1:
        return np.broadcast_to(mark, shape)
    frame: Array = NOISE[(7 * lane + 31 * episode + step) % len(NOISE)].copy()
    frame[0] = mark
    return frame


@dataclass
class Step:
    """One transition as it was given to the memory."""

    action: int
    reward: float
    return_ends: bool
    episode_ends: bool


@dataclass
class Episode:
    """All frames of an episode and all steps between them."""

    frames: list[Array]
    steps: list[Step] = field(default_factory=list)


@dataclass
class Expected:
    """What a row of a batch has to be."""

    frames: Array  # [K + n, *frame], zero beyond offset + K
    offset: int
    action: int
    reward: np.float32
    discount: np.float32


class Oracle:
    """Everything that ever happened, per lane."""

    def __init__(self) -> None:
        self.episodes: dict[int, list[Episode]] = {}

    def begin(self, lane: int, frame: Array) -> None:
        self.episodes.setdefault(lane, []).append(Episode([frame]))

    def append(self, lane: int, step: Step, frame: Array) -> None:
        episode = self.episodes[lane][-1]
        episode.steps.append(step)
        episode.frames.append(frame)

    def cut(self, lane: int) -> None:
        if lane in self.episodes and self.episodes[lane][-1].steps:
            self.episodes[lane][-1].steps[-1].episode_ends = True

    def transitions(self, lane: int) -> list[tuple[Episode, int]]:
        """Return the transitions of a lane in order: an episode and a time in it."""
        return [(episode, t) for episode in self.episodes.get(lane, []) for t in range(len(episode.steps))]

    def num_complete(self, lane: int, n_steps: int) -> int:
        """Return how many transitions have a complete window: these come first."""
        count = 0
        for episode, t in self.transitions(lane):
            steps = episode.steps[t : t + n_steps]
            if len(steps) == n_steps or any(step.return_ends or step.episode_ends for step in steps):
                count += 1
        return count


def cut_window(episode: Episode, t: int, *, stack: int, n_steps: int, gamma: float, clip: bool) -> Expected:
    """Cut one window, step by step."""
    total, offset, discount = 0.0, 0, 1.0
    for step in episode.steps[t : t + n_steps]:
        reward = float(np.float32(step.reward))
        total += gamma**offset * (min(max(reward, -1.0), 1.0) if clip else reward)
        offset += 1
        if step.return_ends or step.episode_ends:
            discount = 0.0 if step.return_ends else 1.0
            break
    frames = np.zeros((stack + n_steps, *episode.frames[0].shape), episode.frames[0].dtype)
    for position in range(stack + offset):
        index = t - stack + 1 + position
        if index >= 0:
            frames[position] = episode.frames[index]
    action = episode.steps[t].action
    return Expected(frames, offset, action, np.float32(total), np.float32(discount * gamma**offset))


def poison_what_leaves(memory: ReplayMemory) -> None:
    """Overwrite the frames of every chunk that is dropped, so that nobody reads them unnoticed."""
    frames = memory.frames
    if not isinstance(frames, PackedFrames):
        return
    drop = frames.drop

    def poison_and_drop(slot: int) -> None:
        length = frames.sealed_bytes(slot)
        frames._backing.write(int(frames._offset[slot]), b"\xa5" * length)
        drop(slot)

    frames.drop = poison_and_drop  # type: ignore[method-assign]


class Player:
    """Plays made-up episodes into a memory and its oracle at once."""

    def __init__(self, layout: ReplayLayout) -> None:
        self.memory = ReplayMemory(layout)
        poison_what_leaves(self.memory)
        self.oracle = Oracle()
        self.closed = set(self.memory.lanes.tolist())  # lanes without an episode under way

    def _first(self, lane: int) -> Array:
        number = len(self.oracle.episodes.get(lane, []))
        return stamp(lane, number, 0, self.memory.layout)

    def begin(self) -> None:
        """Begin an episode in each lane that has none."""
        lanes = np.array(sorted(self.closed), np.int64)
        if not len(lanes):
            return
        frames = np.stack([self._first(lane) for lane in lanes.tolist()])
        self.memory.begin(lanes, frames)
        for lane, frame in zip(lanes.tolist(), frames, strict=True):
            self.oracle.begin(lane, frame)
        self.closed.clear()

    def step(self, endings: list[str], rewards: list[float], ids: IntArray | None = None) -> None:
        """Play one step of all lanes or some; an ending is "", "life", "terminated" or "truncated"."""
        self.begin()
        memory, oracle = self.memory, self.oracle
        ids = memory.lanes if ids is None else ids
        lanes = ids.tolist()
        episodes = [oracle.episodes[lane] for lane in lanes]
        actions = np.array([7 * sum(len(e.steps) for e in es) % 300 for es in episodes], np.int64)
        frames = [
            stamp(lane, len(es) - 1, len(es[-1].frames), memory.layout)
            for lane, es in zip(lanes, episodes, strict=True)
        ]
        first_frames = np.stack([self._first(lane) for lane in lanes])
        return_ends = np.array([ending in ("life", "terminated") for ending in endings])
        episode_ends = np.array([ending in ("terminated", "truncated") for ending in endings])
        memory.append(
            ids,
            actions=actions,
            reward=np.array(rewards, np.float32),
            return_ends=return_ends,
            episode_ends=episode_ends,
            frames=np.stack(frames),
            first_frames=first_frames,
        )
        for i, lane in enumerate(lanes):
            step = Step(int(actions[i]), rewards[i], bool(return_ends[i]), bool(episode_ends[i]))
            oracle.append(lane, step, frames[i])
            if episode_ends[i]:
                oracle.begin(lane, first_frames[i])

    def play(self, rng: np.random.Generator, steps: int, end_probability: float = 0.1) -> None:
        """Play random steps."""
        for _ in range(steps):
            count = len(self.memory.lanes)
            ends = rng.random(count) < end_probability
            kinds = rng.choice(["life", "terminated", "truncated"], count)
            self.step(np.where(ends, kinds, "").tolist(), rng.normal(size=count).round(3).tolist())

    def cut(self, lanes: list[int]) -> None:
        """Cut the episodes of `lanes`."""
        self.memory.cut(np.array(lanes, np.int64))
        for lane in lanes:
            if lane not in self.closed:
                self.oracle.cut(lane)
                self.closed.add(lane)

    def open_lanes(self) -> None:
        """Go on with new lanes."""
        for lane in self.memory.lanes.tolist():
            if lane not in self.closed:
                self.oracle.cut(lane)
        self.closed = set(self.memory.open_lanes().tolist())

    def poison_free_slots(self) -> None:
        """Make it visible if anything that is not held gets read."""
        pool, frames = self.memory.pool, self.memory.frames
        places = np.arange(pool.frames_per_chunk)
        rows = (np.array(pool.free, np.int64)[:, None] * pool.frames_per_chunk + places).ravel()
        if isinstance(frames, FlatFrames):
            frames.frames[rows] = 0xA5
        for column in pool.columns.values():
            column[rows] = 0xA5 if column.dtype == np.uint8 else 77

    def sampleable(self) -> Handles:
        """Return every transition that may be drawn."""
        first, size = self.memory.intervals()
        lanes = np.arange(len(size)) + self.memory.table.first_lane
        numbers = [np.arange(lo, lo + n) for lo, n in zip(first.tolist(), size.tolist(), strict=True)]
        return Handles(np.repeat(lanes, size), np.concatenate(numbers).astype(np.int64))

    def check_rows(self, handles: Handles, *, n_steps: int, gamma: float = 0.9, clip: bool = False) -> None:
        """Compare rows with the oracle's."""
        self.poison_free_slots()
        out = BatchBuffers(self.memory.layout, batch_size=len(handles.lane), n_steps=n_steps)
        draw = Draw(handles, np.ones(len(handles.lane), np.float32))
        batch = gather(self.memory, draw, gamma=gamma, clip_rewards=clip, out=out)
        self.check_batch(batch, handles, n_steps=n_steps, gamma=gamma, clip=clip)

    def check_batch(self, batch: Batch, handles: Handles, *, n_steps: int, gamma: float, clip: bool) -> None:
        """Compare a batch that was gathered with what the oracle has."""
        stack = self.memory.layout.stack
        history = {lane: self.oracle.transitions(lane) for lane in set(handles.lane.tolist())}
        rows = [
            cut_window(*history[lane][number], stack=stack, n_steps=n_steps, gamma=gamma, clip=clip)
            for lane, number in zip(handles.lane.tolist(), handles.number.tolist(), strict=True)
        ]
        assert batch.offset.tolist() == [row.offset for row in rows]
        assert batch.action.tolist() == [row.action for row in rows]
        np.testing.assert_allclose(batch.reward.numpy(), [row.reward for row in rows], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(batch.discount.numpy(), [row.discount for row in rows], rtol=1e-6)
        for found, row in zip(batch.frames.numpy(), rows, strict=True):
            assert np.array_equal(found, row.frames)
