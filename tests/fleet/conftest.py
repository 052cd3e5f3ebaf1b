"""Lets the tests of this folder import the modules beside them, and starts the process that stands for an engine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent / "report")]

from quick_fleets import Zygote

from redline.fleet import starts, supervisor


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A process without threads that forks runners: each would take half a second to load Python's modules."""
    with Zygote() as process:
        yield process


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a supervisor look often, and not at the machine."""
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)
    monkeypatch.setattr(supervisor, "LONGEST_POLL_S", 0.02)
    monkeypatch.setattr(supervisor, "HEALTH_S", 1e9)
    monkeypatch.setattr(starts, "PAUSE_S", 0.1)
