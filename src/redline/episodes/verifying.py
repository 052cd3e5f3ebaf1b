"""Plays recorded episodes again and compares returns, ends and frame checksums with the recording."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from redline.episodes.episode import CHECK_EVERY_STEPS, RecordingError, Trace, frame_checksum, stretch_checksum
from redline.episodes.library import Entry, Library, chains
from redline.episodes.replaying import Replay, Replayed, RequestedStop, StoppedWhilePlayingError
from redline.episodes.setting import Setting
from redline.errors import UserError
from redline.types import Progress

WAIT_S = 0.2


@dataclass(frozen=True)
class Verdict:
    """Whether an episode was reproduced."""

    entry: Entry
    mismatch: str | None  # what differs at which step; None: nothing


def verify(
    library: Library,
    entries: Sequence[Entry],
    *,
    threads: int,
    progress: Progress = lambda _: None,
    requested_stop: RequestedStop = lambda: None,
) -> list[Verdict]:
    """Play episodes again, several lanes at once, and return a verdict on each, in the order of `entries`."""
    groups = list(chains(library, entries))
    total = max(1, sum(_steps_of(line) for _, line in groups))
    verdicts: dict[int, Verdict] = {}
    done_steps = 0
    with _Stage(threads) as stage:
        waiting = {stage.submit(library, group, line): _steps_of(line) for group, line in groups}
        while waiting:
            ended, _ = wait(waiting, timeout=WAIT_S, return_when=FIRST_COMPLETED)
            for future in ended:
                done_steps += waiting.pop(future)
                verdicts |= {verdict.entry.index: verdict for verdict in future.result()}
            progress(done_steps / total)
            if reason := requested_stop():
                raise StoppedWhilePlayingError(f"{reason} after {len(verdicts):,} of {len(entries):,} episodes")
    return [verdicts[entry.index] for entry in entries]


def _steps_of(line: list[Entry] | RecordingError) -> int:
    return 1 if isinstance(line, RecordingError) else line[-1].header.end_steps


class _Stage:
    """Threads, each with its own env: a running emulator releases the interpreter."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="verify")
        self._own = threading.local()
        self._made: list[Replay] = []
        self._is_over = threading.Event()

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._pool.shutdown(cancel_futures=True)
        for replay in self._made:
            replay.close()

    def submit(self, library: Library, group: list[Entry], line: list[Entry] | RecordingError) -> Future[list[Verdict]]:
        return self._pool.submit(self._verify, library, group, line)

    def _verify(self, library: Library, group: list[Entry], line: list[Entry] | RecordingError) -> list[Verdict]:
        if isinstance(line, RecordingError):
            return [Verdict(entry, str(line)) for entry in group]
        try:
            replay = self._replay(library.setting_of(line[0]))
        except (RecordingError, UserError) as error:
            return [Verdict(entry, str(error)) for entry in group]
        return verify_line(library, group, line, replay, is_over=self._is_over.is_set)

    def _replay(self, setting: Setting) -> Replay:
        known: tuple[Setting, Replay] | None = getattr(self._own, "known", None)
        if known is None or known[0] != setting:
            known = self._own.known = (setting, Replay(setting))
            self._made.append(known[1])
        return known[1]


def verify_line(
    library: Library, group: Sequence[Entry], line: Sequence[Entry], replay: Replay, *, is_over: Callable[[], bool]
) -> list[Verdict]:
    """Play all records of a chain in one go and judge those of the group; stop early if `is_over`."""

    def play(action: int) -> Replayed:
        if is_over():
            raise RecordingError("the verification was stopped")
        return replay.play(action)

    judged = {entry.index for entry in group}
    verdicts: list[Verdict] = []
    lasting: str | None = None  # since this difference the replay has left the recorded path
    replay.begin(line[0].header.seed)
    for entry in line:
        mismatch = None if lasting is None else f"after an episode that differs: {lasting}"
        if lasting is None:
            try:
                trace = library.load(entry)
                before, own = np.split(trace.actions, [trace.seed_offset_steps - trace.actions_from])
                for action in before.tolist():
                    play(action)
                mismatch = lasting = _compare(trace, own.tolist(), play)
            except _WrongTotalError as error:
                mismatch = str(error)
            except (RecordingError, UserError) as error:
                mismatch = lasting = str(error)
        if entry.index in judged:
            verdicts.append(Verdict(entry, mismatch))
    return verdicts


class _WrongTotalError(Exception):
    """All steps agree, but not the recorded total; later episodes are not affected."""


def _compare(trace: Trace, actions: Sequence[int], play: Callable[[int], Replayed]) -> str | None:
    """Play an episode and return the first step that differs; raise _WrongTotalError if only the total does."""
    total, rewards = 0.0, np.zeros(CHECK_EVERY_STEPS, np.float32)
    for number, action in enumerate(actions, start=1):
        step = play(action)
        total += float(step.reward)
        place = (number - 1) % CHECK_EVERY_STEPS
        rewards[place] = step.reward
        if step.ended != (number == trace.length_steps):
            end = "it ended" if step.ended else "it did not end"
            return f"{end} at step {number:,}, recorded were {trace.length_steps:,}"
        check = (number - 1) // CHECK_EVERY_STEPS - trace.checks_from
        if check >= 0 and (place == CHECK_EVERY_STEPS - 1 or step.ended):
            frame_crc32, stretch_crc32 = trace.checks[check].tolist()
            taken = np.array(actions[number - place - 1 : number]) if trace.checks_actions else None
            if frame_crc32 != frame_checksum(step.frame):
                return f"the observation at step {number:,} differs"
            if stretch_crc32 != stretch_checksum(rewards[: place + 1], taken):
                return f"a reward or an action within the {place + 1} steps up to step {number:,} differs"
    if trace.is_truncated == step.terminated:
        raise _WrongTotalError(f"it was {'not ' if step.terminated else ''}cut by a limit")
    if total != trace.total_reward:
        raise _WrongTotalError(f"its return is {total:g}, recorded was {trace.total_reward:g}")
    return None
