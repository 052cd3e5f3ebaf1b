"""A daemon thread that works while the caller does something else, or waits with a limit."""

import atexit
import threading
import time
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

END_S = 2.0  # that the end of the process waits for jobs under way

Jobs = SimpleQueue[tuple[int, Callable[[], Any]] | None]
Results = SimpleQueue[tuple[int, Any, BaseException | None]]


class Worker:
    """Does jobs in its own thread, one after the other; results are taken in the same order.

    The thread that waits for a result still handles signals. A job that never returns keeps the worker's thread.
    The thread is a daemon: the process waits two seconds for it when it ends. It would wait forever for a thread of a
    `ThreadPoolExecutor`.
    """

    def __init__(self, name: str) -> None:
        self._tickets = count()
        self._jobs: Jobs = SimpleQueue()
        self._results: Results = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs, self._results), name=name, daemon=True)
        self._thread.start()
        _serving[self._thread] = self._jobs

    def submit(self, job: Callable[[], Any]) -> int:
        """Queue a job, and return the ticket for its result."""
        ticket = next(self._tickets)
        self._jobs.put((ticket, job))
        return ticket

    def result(self, ticket: int, timeout_s: float | None = None) -> Any:
        """Wait for a job's result, or raise its error; TimeoutError if that takes too long.

        Results of earlier jobs are dropped: whoever waited for them was interrupted.
        """
        found = -1
        while found != ticket:
            try:
                found, value, error = self._results.get(timeout=timeout_s)
            except Empty:
                raise TimeoutError from None
        if error is not None:
            raise error
        return value

    @property
    def is_over(self) -> bool:
        """Whether no result is left and none will come."""
        return not self._thread.is_alive() and self._results.empty()

    def close(self, timeout_s: float | None = None) -> None:
        """End the thread after its jobs, or leave it to them; closing twice is harmless."""
        self._jobs.put(None)
        self._thread.join(timeout_s)


_serving: dict[threading.Thread, Jobs] = {}


@atexit.register
def _end_workers() -> None:
    """Let jobs end while Python is whole: a thread that comes back from C++ later aborts the process."""
    until_s = time.monotonic() + END_S
    serving = dict(_serving)
    for jobs in serving.values():
        jobs.put(None)
    for thread in serving:
        thread.join(max(until_s - time.monotonic(), 0.0))


def _serve(jobs: Jobs, results: Results) -> None:
    while (task := jobs.get()) is not None:
        ticket, job = task
        try:
            results.put((ticket, job(), None))
        except BaseException as error:
            results.put((ticket, None, error))
        del task, job  # frees what nobody else holds, such as an env
    del _serving[threading.current_thread()]
