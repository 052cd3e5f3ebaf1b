"""A daemon thread that waits for the emulator, so that the caller does not hang with it."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

Jobs = SimpleQueue[Callable[[], Any] | None]
Results = SimpleQueue[tuple[Any, BaseException | None]]


class Receiver:
    """Runs one job at a time in its own thread; the caller waits for the result with a limit.

    The waiting thread still handles signals. A job that never returns keeps its thread, a daemon, which does not delay
    the end of the process: threads of a `ThreadPoolExecutor` would.
    """

    def __init__(self, name: str) -> None:
        self._jobs: Jobs = SimpleQueue()
        self._results: Results = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs, self._results), name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> None:
        """Begin the job at once."""
        self._jobs.put(job)

    def result(self, timeout_s: float) -> Any:
        """Wait for the job's result, or raise its error; TimeoutError if that takes too long."""
        try:
            value, error = self._results.get(timeout=timeout_s)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error
        return value

    def close(self, timeout_s: float) -> None:
        """End the thread after its current job, or leave it to that job."""
        self._jobs.put(None)
        self._thread.join(timeout_s)


def _serve(jobs: Jobs, results: Results) -> None:
    while (job := jobs.get()) is not None:
        try:
            results.put((job(), None))
        except BaseException as error:
            results.put((None, error))
        del job  # frees an env that nobody else holds
