"""A daemon thread that waits for the emulator, so that the caller does not hang with it."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Answer(Generic[T]):
    """The result of a job; a future with a single reader, at a fraction of the cost."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job = job
        self._pending = threading.Lock()
        self._pending.acquire()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the job."""
        try:
            self._value = self._job()
        except BaseException as error:
            self._error = error
        self._pending.release()

    def result(self, timeout_s: float) -> T:
        """Wait for the job's result, or raise its error; TimeoutError if that takes too long."""
        if not self._pending.acquire(timeout=timeout_s):
            raise TimeoutError
        self._pending.release()
        if self._error is not None:
            raise self._error
        return self._value


class Receiver:
    """Runs one job after the other in its own thread; callers wait for results with a limit.

    The waiting thread still handles signals. A job that never returns keeps its thread, a daemon, which does not delay
    the end of the process: threads of a `ThreadPoolExecutor` would.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Answer[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Answer[T]:
        """Begin the job at once."""
        answer = Answer(job)
        self._jobs.put(answer)
        return answer

    def close(self, timeout_s: float) -> None:
        """End the thread after its current job, or leave it to that job."""
        self._jobs.put(None)
        self._thread.join(timeout_s)


def _serve(jobs: "SimpleQueue[Answer[Any] | None]") -> None:
    while (answer := jobs.get()) is not None:
        answer.run()
        del answer  # frees an env that nobody else holds
