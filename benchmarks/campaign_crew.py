"""Several workers of the campaign side by side: gives out the cases, and collects their rows."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from campaign_rows import Row
from recording import say

SCRIPT = Path(__file__).resolve().parent / "campaign_worker.py"
Case = tuple[str, int]  # kind and number


class Worker:
    """A process that runs cases, started when it gets the first one, and again if it died."""

    def __init__(self, *flags: str, script: Path = SCRIPT) -> None:
        self._command = [sys.executable, str(script), *flags]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()  # the end of stdin ends it

    def run(self, case: Case) -> Row:
        """Run a case and return its row; a worker that dies of it is a fault as well."""
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        kind, index = case
        try:
            self._process.stdin.write(f"{kind}:{index}\n")
            self._process.stdin.flush()
            row: Row = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            self._process.kill()
            self._process.communicate()
            code, self._process = self._process.returncode, None
            fault = {"oracle": "campaign", "detail": f"its worker ended with {code}"}
            return {"kind": kind, "index": index, "faults": [fault], "case": {}, "size": 0, "seconds": 0.0}
        return row

    def _start(self) -> subprocess.Popen[str]:
        # in a session of its own: a Ctrl-C ends the campaign after the cases under way
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None  # noqa: S101
        if not process.stdout.readline():
            process.communicate()
            raise RuntimeError(f"a worker of the campaign can't start: it ended with {process.returncode}")
        return process


def run_cases(
    cases: Iterator[Case], workers: list[Worker], *, keep: Callable[[Row], None], is_over: Callable[[], bool]
) -> None:
    """Let each worker take the next case until there are no more, or no more may begin; keep each row.

    RuntimeError if a worker can't start.
    """
    lock = threading.Lock()

    def work(worker: Worker) -> None:
        with worker:
            while True:
                with lock:
                    case = None if is_over() else next(cases, None)
                if case is None:
                    return
                row = worker.run(case)
                with lock:
                    keep(row)
                for fault in row["faults"]:
                    say(f"{row['kind']}:{row['index']} {fault['oracle']}: {fault['detail']}")

    with ThreadPoolExecutor(len(workers)) as pool:
        for done in [pool.submit(work, worker) for worker in workers]:
            done.result()
