"""Lets the tests of this folder start processes as a run does, and import the modules beside them."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from redline.runtime.processes.process_pool import PRELOAD, ProcessPool
from redline.runtime.processes.shared import SharedStatus

sys.path.insert(0, str(Path(__file__).parent))
# before anything starts the server: it loads nothing afterwards
multiprocessing.get_context("forkserver").set_forkserver_preload([PRELOAD])


@pytest.fixture(scope="session")
def fork_server() -> None:
    """Start the server, which takes seconds, before a test looks at the clock."""
    first = multiprocessing.get_context("forkserver").Process(target=print)
    first.start()
    first.join()


@pytest.fixture
def start_child(fork_server: None) -> Iterator[Callable[..., BaseProcess]]:
    """Start a process that calls a function; what a test leaves behind is killed."""
    started: list[BaseProcess] = []

    def start(work: Callable[..., None], *args: object, method: str = "forkserver") -> BaseProcess:
        context: Any = multiprocessing.get_context(method)
        process: BaseProcess = context.Process(target=work, args=args, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.fixture
def pool(fork_server: None) -> Iterator[ProcessPool]:
    """A pool of up to two actors; what a test leaves behind is killed."""
    pool = ProcessPool(SharedStatus(2))
    yield pool
    for member in list(pool.members.values()):
        pool.end(member)
