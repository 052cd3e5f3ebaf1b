"""What other processes do in the tests of this folder; it stands here so that they can import it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import torch

from redline.runs.directory import SharedLock
from redline.runtime.counters import Counters, Scores
from redline.runtime.processes.process_pool import Outbox
from redline.runtime.processes.shared import Doorbell, SharedStatus, SharedWeights, Slot

StartChild = Callable[..., BaseProcess]

PATIENCE_S = 60.0  # on a machine that is very busy; nothing waits so long unless it is broken


def look_until(is_true: Callable[[], bool], wait_s: float = PATIENCE_S) -> None:
    """Look again and again until something is true."""
    end_s = time.monotonic() + wait_s
    while not is_true():
        if time.monotonic() > end_s:
            raise TimeoutError("it did not become true")
        time.sleep(0.002)


# Bells


def answer(question: Doorbell, reply: Doorbell, times: int) -> None:
    """Ring one bell for each ring of another."""
    for _ in range(times):
        begun_s = time.monotonic()
        question.wait(PATIENCE_S)
        assert time.monotonic() - begun_s < PATIENCE_S / 2
        reply.ring()


# Boards


def answer_status(status: SharedStatus, index: int) -> None:
    """Show something in every cell that this slot may write, when the supervisor and the learner have shown theirs."""
    slot = Slot(status, index)
    assert slot.wait_until(lambda: status.saves_ordered == 2, on="learner", timeout_s=PATIENCE_S)
    assert (status.sync_answered, status.sync_failed) == (5, 4)
    assert (status.run_steps, status.run_updates) == (1_000, 70)
    counters, scores = Counters(evaluations=2), Scores()
    status.read_evaluations(counters, scores)
    assert (counters.evaluations, counters.evaluated_steps, counters.solved_s) == (3, 900, 60.0)
    assert (scores.greedy_return, scores.confirmed_return, scores.solved_target) == (12.5, None, None)
    slot.played(8)
    slot.played(8)
    slot.acted_with(60)
    assert not slot.wait_until(lambda: False, on="envs", timeout_s=0.05)
    status.bells[0].ring()
    assert not slot.wait_until(lambda: False, on="rest")  # until the run ends


def stop_when_it_waits(status: SharedStatus, index: int) -> None:
    """End the run as soon as a slot shows that it lives."""
    look_until(lambda: status.beat_s[index] > 0.0)
    status.stop()


def play_when_it_waits(status: SharedStatus, index: int) -> None:
    """Count a step as soon as another slot shows that it lives, and ring its bell."""
    look_until(lambda: status.beat_s[index] > 0.0)
    Slot(status, index + 1).played(1)
    status.bells[index].ring()


# Weights


def filled(shapes: dict[str, tuple[int, ...]], value: float) -> dict[str, torch.Tensor]:
    """Return tensors that hold one number everywhere."""
    return {name: torch.full(shape, float(value)) for name, shape in shapes.items()}


def publish_for_ever(weights: SharedWeights, shapes: dict[str, tuple[int, ...]]) -> None:
    """Publish version after version, each filled with its number, as fast as that goes."""
    torch.set_num_threads(1)
    tensors = filled(shapes, 0.0)
    while True:
        number = weights.number + 1
        for tensor in tensors.values():
            tensor.fill_(number)
        weights.publish(tensors, updates=number * 2, steps=number * 3)


def ask_and_read(weights: SharedWeights, shapes: dict[str, tuple[int, ...]], reader: int) -> None:
    """Ask for a second version, and read it."""
    assert weights.number == 1
    weights.ask(reader)
    look_until(lambda: weights.number == 2)
    into = filled(shapes, -1.0)
    assert weights.read(into).updates == 4
    assert all(bool((tensor == 2.0).all()) for tensor in into.values())


# Messages


def send_many(outbox: Outbox, count: int) -> None:
    """Send numbered messages."""
    for number in range(count):
        outbox.send("number", number=number, text="x" * (number % 300))


def send_large(outbox: Outbox, size: int) -> None:
    """Send one message that no pipe takes at once."""
    outbox.send("large", text="ä" * size)


# Locks


def hold(lock: SharedLock, taken: Doorbell, let_go: Doorbell) -> None:
    """Have the lock of a run until told to end."""
    taken.ring()
    let_go.wait(PATIENCE_S)
    lock.close()


# The pool: each is given a status and its slot there


def end_at_once(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Tell something, and have nothing to do."""
    outbox.send("last", number=1)
    outbox.send("last", number=2)


def exit_with_3(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """End as a library does that has given up."""
    os._exit(3)


def fail(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Raise an error."""
    outbox.send("last", number=1)
    raise ValueError("no such thing")


def live(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Play on until the run ends."""
    status, index = kit
    slot = Slot(status, index)
    slot.beat()
    outbox.send("living", pid=os.getpid(), server=os.getppid())
    while not status.is_stopped:
        slot.played(1)
        slot.wait_until(lambda: False, on="learner", timeout_s=0.01)


def live_for_ever(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Never look whether the run has ended."""
    status, index = kit
    slot = Slot(status, index)
    while True:
        slot.beat()
        time.sleep(0.01)


def fall_silent(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Show one sign of life, then hang with a message half sent."""
    status, index = kit
    outbox.send("last", number=1)
    os.write(outbox._descriptor, (100).to_bytes(8, "little") + b"torn")
    Slot(status, index).beat()
    time.sleep(10 * PATIENCE_S)


def announce_silence(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Say that there will be no sign of life for a while."""
    status, index = kit
    Slot(status, index).beat(10 * PATIENCE_S)
    time.sleep(10 * PATIENCE_S)


def never_begin(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Show no sign of life at all."""
    time.sleep(10 * PATIENCE_S)


def tell_modules(kit: tuple[SharedStatus, int], outbox: Outbox) -> None:
    """Tell what is loaded at the start."""
    import sys

    outbox.send("modules", names=[name for name in sys.modules if name.startswith("redline.runtime.processes.")])
