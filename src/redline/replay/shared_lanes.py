"""How other processes write into a replay memory: one ring of records per lane, without locks.

Each lane has one writer, which alone moves the lane's head, and one reader, the owner of the memory, which alone moves
its tail. A writer writes the payload first and then publishes it by moving the head; what is not published does not
exist. A writer that dies therefore leaves only whole steps, and holds nothing that others wait for. Its successor
begins with a cut, which ends the unfinished episode.

A step that ends an episode may carry a letter: bytes in a second ring of the lane, its mail. Each record says where the
lane's mail ends, so that one head publishes both rings and a successor finds the published end of both. A writer takes
a step only if each lane has room for a largest letter, half of its mail, and publishes a lane whose waiting mail fills
more than the other half: otherwise the owner could never free that room.

The owner takes published records into its memory, one step of each lane at a time, and frees their room when it wants
to: the room limits how far writers run ahead. Free records are filled with poison, so that an unwritten record is never
taken for a real one. Mail needs no poison: only a record leads to it.

x86-64 processors keep the order of two stores, and others see them in that order; elsewhere this would need fences
that Python does not have, so it is refused there.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from redline.errors import UserError
from redline.replay.backing import CACHE_LINE_BYTES, ReplayError, SharedBlock
from redline.replay.chunks import EPISODE_ENDS, RETURN_ENDS
from redline.replay.memory import ReplayMemory
from redline.types import Array, BoolArray, FloatArray, IntArray

STEP, BEGIN, CUT = 1, 2, 3  # kinds of records; 0 is poison
RECORDS_AT_ONCE = 2  # at most: a step that ends an episode and the first frame of the next, or a cut and a beginning
POISON = 0xA5


class Taken(NamedTuple):
    """The records that the owner took in one call."""

    steps: int
    lanes: IntArray  # [M] in which an episode ended
    letters: list[bytes]  # one of each, as the writer was given it


@dataclass(frozen=True)
class PushRule:
    """When a writer publishes, and how far it may run ahead of the owner."""

    records: int | None  # of a lane, published together; None: whole episodes, if there is room
    records_ahead: int  # of a lane: another step is taken while no more than these wait for the owner

    @property
    def depth(self) -> int:
        """Records that fit into a lane's ring."""
        return self.records_ahead + 2 * RECORDS_AT_ONCE


LOCKSTEP = PushRule(records=1, records_ahead=0)
STEP_BY_STEP = PushRule(records=1, records_ahead=3)
UNPACED = PushRule(records=1, records_ahead=31)  # room to continue while the learner computes
IN_CHUNKS = PushRule(records=16, records_ahead=32)
BY_EPISODE = PushRule(records=None, records_ahead=1_020)


class SharedLanes:
    """The rings, in memory that several processes map."""

    def __init__(
        self, lanes: int, frame_shape: tuple[int, ...], frame_dtype: str, *, rule: PushRule, mail_bytes: int = 0
    ) -> None:
        """Reserve the rings; a lane has room for `mail_bytes` of letters."""
        check_platform()
        depth = rule.depth
        words = CACHE_LINE_BYTES // 8
        fields = {
            "head": ((lanes, words), "int64"),
            "tail": ((lanes, words), "int64"),
            "frame": ((lanes, depth, *frame_shape), frame_dtype),
            "action": ((lanes, depth), "int32"),
            "reward": ((lanes, depth), "float32"),
            "kind": ((lanes, depth), "uint8"),
            "flags": ((lanes, depth), "uint8"),
            "mail_end": ((lanes, depth), "int64"),
            "mail_tail": ((lanes, words), "int64"),
            "mail": ((lanes, mail_bytes), "uint8"),
        }
        self._look_at(SharedBlock("redline-lanes", fields), rule)
        self._poison(np.arange(lanes)[:, None], np.arange(depth)[None])

    def _look_at(self, block: SharedBlock, rule: PushRule) -> None:
        self._block = block
        self.rule = rule
        self.depth = rule.depth
        self.head: IntArray = block["head"][:, 0]  # records published, ever; the writer's
        self.tail: IntArray = block["tail"][:, 0]  # records taken and given back, ever; the owner's
        self.frame, self.action, self.reward = block["frame"], block["action"], block["reward"]
        self.kind, self.flags = block["kind"], block["flags"]
        self.mail = block["mail"]
        self.mail_bytes = int(self.mail.shape[1])
        self.largest_letter_bytes = self.mail_bytes // 2
        self.mail_end: IntArray = block["mail_end"]  # bytes of mail, ever, up to and with each record; never poisoned
        self.mail_tail: IntArray = block["mail_tail"][:, 0]  # bytes of mail taken and given back, ever; the owner's
        self._taken = self.tail.copy()  # records taken, ever
        self._mail_taken = self.mail_tail.copy()

    def __len__(self) -> int:
        return len(self.head)

    def __getstate__(self) -> tuple[SharedBlock, PushRule]:
        return self._block, self.rule

    def __setstate__(self, state: tuple[SharedBlock, PushRule]) -> None:
        self._look_at(*state)

    def mail_places(self, begin: int, end: int) -> IntArray:
        """Return where in a lane's ring the bytes are from `begin` to `end`."""
        places: IntArray = np.arange(begin, end) % self.mail_bytes
        return places

    def take(self, memory: ReplayMemory) -> Taken:
        """Take at most one step of each lane into the memory, and the cuts and beginnings before it.

        Lane i of the rings is the i-th lane that the memory writes. `release` frees the room for the writers.
        """
        head = self.head.copy()  # read once: what comes later waits for the next call
        while len(control := self._waiting(head, STEP, is_kind=False)):
            at = self._taken[control] % self.depth
            kind = self.kind[control, at]
            if not np.isin(kind, (CUT, BEGIN)).all():
                raise ReplayError("the rings hold a record that no actor wrote: shared memory was corrupted")
            if (kind == CUT).any():
                memory.cut(memory.lanes[control[kind == CUT]])
            if (kind == BEGIN).any():
                memory.begin(memory.lanes[control[kind == BEGIN]], self.frame[control, at][kind == BEGIN])
            self._taken[control] += 1
        lanes = self._waiting(head, STEP, is_kind=True)
        if not len(lanes):
            return Taken(0, lanes, [])
        at = self._taken[lanes] % self.depth
        flags = self.flags[lanes, at]
        episode_ends = flags & EPISODE_ENDS != 0
        memory.append(
            memory.lanes if len(lanes) == len(self) else memory.lanes[lanes],
            actions=self.action[lanes, at].astype(np.int64),
            reward=self.reward[lanes, at],
            return_ends=flags & RETURN_ENDS != 0,
            episode_ends=episode_ends,
            frames=self.frame[lanes, at],
            first_frames=self.frame[lanes, (at + 1) % self.depth],
        )
        self._taken[lanes] += 1 + episode_ends  # the first frame of the next episode was the next record
        over = lanes[episode_ends]
        ends = self.mail_end[lanes, at][episode_ends]
        letters = [self._take_letter(lane, end) for lane, end in zip(over.tolist(), ends.tolist(), strict=True)]
        return Taken(len(lanes), over, letters)

    def _take_letter(self, lane: int, end: int) -> bytes:
        begin = int(self._mail_taken[lane])
        if not 0 <= end - begin <= self.largest_letter_bytes:
            raise ReplayError("the rings hold a letter that no actor wrote: shared memory was corrupted")
        self._mail_taken[lane] = end
        return bytes(self.mail[lane, self.mail_places(begin, end)])

    def release(self) -> IntArray:
        """Free the room of what was taken for its writers; return their lanes."""
        lanes: IntArray = np.flatnonzero(self.tail < self._taken)
        for record in range(int((self._taken - self.tail).max(initial=0))):
            some = lanes[self.tail[lanes] + record < self._taken[lanes]]
            self._poison(some, (self.tail[some] + record) % self.depth)
        self.tail[lanes] = self._taken[lanes]
        self.mail_tail[lanes] = self._mail_taken[lanes]
        return lanes

    @property
    def has_taken(self) -> bool:
        """Whether the room of something taken is not released yet."""
        return bool((self.tail < self._taken).any())

    @property
    def has_steps(self) -> bool:
        """Whether something published is not taken yet; in lockstep, in every lane."""
        is_there = self._taken < self.head
        return bool(is_there.all() if self.rule.records_ahead == 0 else is_there.any())

    def _waiting(self, head: IntArray, kind: int, *, is_kind: bool) -> IntArray:
        """Return the lanes whose next record is published, and is or is not of a kind."""
        lanes = np.flatnonzero(self._taken < head)
        found: IntArray = lanes[(self.kind[lanes, self._taken[lanes] % self.depth] == kind) == is_kind]
        return found

    def _poison(self, lanes: IntArray, at: IntArray) -> None:
        self.kind[lanes, at] = 0
        self.frame[lanes, at] = POISON
        self.action[lanes, at] = -1
        self.reward[lanes, at] = np.nan


class LaneWriter:
    """Writes some of the lanes from one process, with the methods of a memory; the caller waits for room."""

    def __init__(self, shared: SharedLanes, lanes: IntArray) -> None:
        self._shared = shared
        self._lanes = lanes
        self._head: IntArray = shared.head[lanes]  # records written, ever
        # bytes of mail written, ever; no predecessor has overwritten the record published last: it had to wait before
        self._mail_end: IntArray = shared.mail_end[lanes, (self._head - 1) % shared.depth]

    @property
    def may_begin(self) -> bool:
        """Whether there is room to begin."""
        return bool((self._waiting() + RECORDS_AT_ONCE).max() <= self._shared.depth)

    @property
    def may_step(self) -> bool:
        """Whether a step may be taken: the owner is not too far behind, and a largest letter has room."""
        return bool(self._waiting().max() <= self._shared.rule.records_ahead and not self._has_much_mail().any())

    def begin(self, first_frames: Array) -> None:
        """Begin an episode in each lane; a predecessor's unfinished episode is cut."""
        self._check(is_free=self.may_begin)
        self._shared.kind[self._lanes, self._head % self._shared.depth] = CUT
        self._put_begin(np.arange(len(self._lanes)), self._head + 1, first_frames)
        self._head += 2
        self._shared.head[self._lanes] = self._head

    def append(
        self,
        *,
        actions: IntArray,  # [N]
        reward: FloatArray,  # [N] unclipped
        return_ends: BoolArray,  # [N] terminated, or a life lost
        episode_ends: BoolArray,  # [N] terminated or truncated
        frames: Array,  # [N, *frame] after the action
        first_frames: Array,  # [N, *frame] of the next episode; read where one ended
        letters: Sequence[bytes] = (),  # of the episodes that end, in the order of the lanes
    ) -> bool:
        """Add one step of each lane, and begin the next episode where one ended; return whether any was published."""
        self._check(is_free=self.may_step)
        shared, lanes = self._shared, self._lanes
        at = self._head % shared.depth
        shared.frame[lanes, at] = frames
        shared.action[lanes, at] = actions
        shared.reward[lanes, at] = reward
        shared.kind[lanes, at] = STEP
        shared.flags[lanes, at] = return_ends * np.uint8(RETURN_ENDS) + episode_ends * np.uint8(EPISODE_ENDS)
        over = np.flatnonzero(episode_ends)
        if letters:
            for lane, letter in zip(over.tolist(), letters, strict=True):
                self._put_letter(lane, letter)
        shared.mail_end[lanes, at] = self._mail_end
        if len(over):
            self._put_begin(over, self._head[over] + 1, first_frames[over])
        self._head += 1 + episode_ends
        return self._publish(episode_ends)

    def _publish(self, episode_ends: BoolArray) -> bool:
        """Move the heads of the lanes that are due: their payload is written."""
        rule = self._shared.rule
        if rule.records is None:  # an episode that is longer than its ring is published in parts
            is_due = episode_ends | (self._waiting() > rule.records_ahead)
        else:
            is_due = self._head - self._shared.head[self._lanes] >= rule.records
        is_due |= self._has_much_mail()
        due = self._lanes[is_due]
        self._shared.head[due] = self._head[is_due]
        return len(due) > 0

    def _waiting(self) -> IntArray:
        waiting: IntArray = self._head - self._shared.tail[self._lanes]
        return waiting

    def _has_much_mail(self) -> BoolArray:
        """Tell which lanes have no room for a largest letter."""
        shared = self._shared
        waiting = self._mail_end - shared.mail_tail[self._lanes]
        has_much: BoolArray = waiting > shared.mail_bytes - shared.largest_letter_bytes
        return has_much

    def _put_begin(self, own: IntArray, record: IntArray, first_frames: Array) -> None:
        lanes, at = self._lanes[own], record % self._shared.depth
        self._shared.frame[lanes, at] = first_frames
        self._shared.kind[lanes, at] = BEGIN
        self._shared.mail_end[lanes, at] = self._mail_end[own]

    def _put_letter(self, own: int, letter: bytes) -> None:
        shared, begin = self._shared, int(self._mail_end[own])
        if len(letter) > shared.largest_letter_bytes:
            raise ValueError(f"a letter of {len(letter):_} bytes: the largest has {shared.largest_letter_bytes:_}")
        places = shared.mail_places(begin, begin + len(letter))
        shared.mail[self._lanes[own], places] = np.frombuffer(letter, np.uint8)
        self._mail_end[own] += len(letter)

    def _check(self, *, is_free: bool) -> None:
        if not is_free:
            raise ValueError("the rings are full: wait until the owner has taken what came before")


def check_platform() -> None:
    """Refuse to share memory on processors that do not keep the order of stores."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise UserError(
            f"a replay memory is shared between processes on Linux x86-64 only, "
            f"not on {sys.platform} {platform.machine()}: use --topology inline"
        )
