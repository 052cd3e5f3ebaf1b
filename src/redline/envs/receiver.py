"""A daemon thread that waits for the emulator, so that nobody else hangs when the emulator does."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]


class Receiver:
    """Runs one job after the other in its own thread; whoever needs a result waits for it with a limit.

    The waiting thread still answers to signals. A job that never returns keeps its thread, which is a daemon and so
    does not hold up the end of the process: the reason why this is no `ThreadPoolExecutor`, whose threads would.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Begin the job at once."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future

    def close(self, timeout_s: float) -> None:
        """End the thread after the job under way, or leave it to that job."""
        self._jobs.put(None)
        self._thread.join(timeout_s)


def _serve(jobs: "SimpleQueue[_Job | None]") -> None:
    while (item := jobs.get()) is not None:
        job, future = item
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)
        del item, job, future  # an env that nobody else holds can go
