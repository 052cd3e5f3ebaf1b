"""Made-up episodes whose pixels tell where they belong, so that a row can be judged without knowing its history."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from redline.replay import BatchBuffers, ReplayMemory, gather
from redline.replay.shared_lanes import LaneWriter, SharedLanes
from redline.types import Array, Draw, Handles, IntArray

FRAME_SHAPE = (10, 12)
GAMMA = 0.9
MAIL_BYTES = 190  # of a lane: two of the largest letters, and no multiple of any

_STAMP = struct.Struct("<4i")


@dataclass(frozen=True)
class Moment:
    """A step of an episode of a writer."""

    lane: int
    writer: int
    episode: int
    step: int

    @property
    def length(self) -> int:
        """Steps that its episode has."""
        return 1 + (self.writer * 31 + self.episode * 17 + self.lane * 5) % 23

    @property
    def is_last(self) -> bool:
        """Whether no step of the episode follows the one that starts here."""
        return self.step + 1 == self.length

    @property
    def is_terminal(self) -> bool:
        """Whether the episode ends by its own rules, and not by a limit."""
        return self.is_last and self.episode % 2 == 0

    @property
    def action(self) -> int:
        """What is done here."""
        return (self.step * 7 + self.episode) % 300

    @property
    def reward(self) -> float:
        """What comes of it."""
        return self.step * 0.5 - self.lane

    def frame(self) -> Array:
        """Return the picture: a line that says everything, and noise."""
        picture: Array = np.full(FRAME_SHAPE, 1 + (self.step * 37 + self.episode) % 255, np.uint8)
        numbers = (self.lane + 1, *divmod(self.writer, 256), *divmod(self.episode, 256), self.step)
        picture[0, : len(numbers)] = numbers
        picture[1:] += np.arange(FRAME_SHAPE[1], dtype=np.uint8) * np.uint8(self.lane + 3)
        return picture

    def after(self) -> Moment:
        """Return where the step leads, within the episode."""
        return Moment(self.lane, self.writer, self.episode, self.step + 1)


def read_frame(picture: Array) -> Moment:
    """Return what a picture says, after checking that every pixel agrees."""
    lane, writer_high, writer_low, episode_high, episode_low, step = (int(number) for number in picture[0, :6])
    found = Moment(lane - 1, writer_high * 256 + writer_low, episode_high * 256 + episode_low, step)
    assert np.array_equal(picture, found.frame())
    return found


def play(writer: LaneWriter, lanes: IntArray, number: int, wait_s: float = 20.0) -> Iterator[None]:
    """Play on forever as the `number`-th writer of these lanes; give up if there is no room for too long."""
    moments = [Moment(lane, number, 0, 0) for lane in lanes.tolist()]
    wait_until(lambda: writer.may_begin, wait_s)
    writer.begin(np.stack([moment.frame() for moment in moments]))
    while True:
        wait_until(lambda: writer.may_step, wait_s)
        over = np.array([moment.is_last for moment in moments])
        following = [Moment(m.lane, number, m.episode + 1, 0) if m.is_last else m.after() for m in moments]
        writer.append(
            actions=np.array([moment.action for moment in moments]),
            reward=np.array([moment.reward for moment in moments], np.float32),
            return_ends=np.array([moment.is_terminal for moment in moments]),
            episode_ends=over,
            frames=np.stack([moment.after().frame() for moment in moments]),
            first_frames=np.stack([moment.frame() for moment in following]),
            letters=[letter_of(moment) for moment in moments if moment.is_last],
        )
        moments = following
        yield


def letter_of(moment: Moment) -> bytes:
    """Return the letter of a step that ends an episode: what it says, as often as makes lengths differ."""
    return _STAMP.pack(*vars(moment).values()) * (1 + moment.episode * 7 % 5)


def read_letter(letter: bytes) -> Moment:
    """Return what a letter says, after checking that every byte agrees."""
    found = Moment(*_STAMP.unpack_from(letter))
    assert letter == letter_of(found)
    assert found.is_last
    return found


def wait_until(is_true: Callable[[], bool], wait_s: float) -> None:
    """Look again and again, for so long."""
    end_s = time.monotonic() + wait_s
    while not is_true():
        if time.monotonic() > end_s:
            raise TimeoutError("the owner has taken no steps for too long")
        time.sleep(0.000_2)


def take_all(shared: SharedLanes, memory: ReplayMemory) -> int:
    """Take everything that was published, and check the letters; return the steps."""
    steps = 0
    while shared.has_steps:
        taken = shared.take(memory)
        steps += taken.steps
        assert [read_letter(letter).lane for letter in taken.letters] == taken.lanes.tolist()
        shared.release()
    return steps


def write_some(shared: SharedLanes, count: int) -> None:
    """Play so many steps on every lane: what a process does that is started for it."""
    lanes = np.arange(len(shared))
    steps = play(LaneWriter(shared, lanes), lanes, 3)
    for _ in range(count):
        next(steps)


def check_all_rows(memory: ReplayMemory) -> int:
    """Check every row that may be drawn, one lane after the other; return how many there are."""
    firsts, sizes = memory.intervals()
    for row, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True)):
        if size:
            _check_lane(memory, memory.table.first_lane + row, np.arange(first, first + size))
    return int(sizes.sum())


def _check_lane(memory: ReplayMemory, lane: int, numbers: IntArray) -> None:
    """Check that the rows of a lane are one history without gaps, up to where a writer was killed."""
    stack = memory.layout.stack
    draw = Draw(Handles(np.full(len(numbers), lane), numbers), np.ones(len(numbers), np.float32))
    out = BatchBuffers(memory.layout, batch_size=len(numbers))
    batch = gather(memory, draw, gamma=GAMMA, clip_rewards=False, out=out)
    before: Moment | None = None
    for row in range(len(numbers)):
        frames = out.frames[row]
        now = read_frame(frames[stack - 1])
        for age in range(1, stack):
            past = frames[stack - 1 - age]
            expected = Moment(now.lane, now.writer, now.episode, now.step - age)
            assert np.array_equal(past, expected.frame() if expected.step >= 0 else np.zeros_like(past))
        assert read_frame(frames[stack]) == now.after()
        assert (int(batch.action[row]), float(batch.reward[row])) == (now.action, now.reward)
        assert float(batch.discount[row]) == (0.0 if now.is_terminal else np.float32(GAMMA))
        if before is not None:
            expected = Moment(now.lane, now.writer, before.episode + 1, 0) if before.is_last else before.after()
            was_killed = before.writer < now.writer and (now.episode, now.step) == (0, 0)
            assert now == expected or was_killed
        before = now
