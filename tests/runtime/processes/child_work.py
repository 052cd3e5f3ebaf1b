"""What other processes do in the tests of this folder; it stands here so that they can import it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import torch

from redline.runs.lock import SharedLock
from redline.runtime.processes.board import Board, Place
from redline.runtime.processes.doorbell import Doorbell
from redline.runtime.processes.messages import Outbox
from redline.runtime.processes.shared_weights import SharedWeights

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


def answer_board(board: Board, index: int) -> None:
    """Show something in every cell that this place may write, when the supervisor and the learner have shown theirs."""
    place = Place(board, index)
    assert place.wait_until(lambda: board.saves_ordered == 2, on="learner", timeout_s=PATIENCE_S)
    assert (board.sync_answered, board.sync_failed) == (5, 4)
    assert (board.run_steps, board.run_updates) == (1_000, 70)
    assert board.evaluation == (3, 900, 12.5)
    place.played(8)
    place.played(8)
    place.acted_with(60)
    assert not place.wait_until(lambda: False, on="envs", timeout_s=0.05)
    board.bells[0].ring()
    assert not place.wait_until(lambda: False, on="rest")  # until the run ends


def stop_when_it_waits(board: Board, index: int) -> None:
    """End the run as soon as a place shows that it lives."""
    look_until(lambda: board.beat_s[index] > 0.0)
    board.stop()


def play_when_it_waits(board: Board, index: int) -> None:
    """Count a step as soon as another place shows that it lives, and ring its bell."""
    look_until(lambda: board.beat_s[index] > 0.0)
    Place(board, index + 1).played(1)
    board.bells[index].ring()


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


# The crew: each is given a board and its place there


def end_at_once(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Tell something, and have nothing to do."""
    outbox.send("last", number=1)
    outbox.send("last", number=2)


def exit_with_3(kit: tuple[Board, int], outbox: Outbox) -> None:
    """End as a library does that has given up."""
    os._exit(3)


def fail(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Raise an error."""
    outbox.send("last", number=1)
    raise ValueError("no such thing")


def live(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Play on until the run ends."""
    board, index = kit
    place = Place(board, index)
    place.beat()
    outbox.send("living", pid=os.getpid(), server=os.getppid())
    while not board.is_stopped:
        place.played(1)
        place.wait_until(lambda: False, on="learner", timeout_s=0.01)


def live_for_ever(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Never look whether the run has ended."""
    board, index = kit
    place = Place(board, index)
    while True:
        place.beat()
        time.sleep(0.01)


def fall_silent(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Show one sign of life, then hang with a message half sent."""
    board, index = kit
    outbox.send("last", number=1)
    os.write(outbox._descriptor, b'{"kind": "tor')
    Place(board, index).beat()
    time.sleep(10 * PATIENCE_S)


def announce_silence(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Say that there will be no sign of life for a while."""
    board, index = kit
    Place(board, index).beat(10 * PATIENCE_S)
    time.sleep(10 * PATIENCE_S)


def never_begin(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Show no sign of life at all."""
    time.sleep(10 * PATIENCE_S)


def tell_modules(kit: tuple[Board, int], outbox: Outbox) -> None:
    """Tell what is loaded at the start."""
    import sys

    outbox.send("modules", names=[name for name in sys.modules if name.startswith("redline.runtime.processes.")])
