"""Lets the tests of this folder import the modules beside them and those that make runs and fleets."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), *(str(Path(__file__).parent.parent / name) for name in ("report", "fleet"))]

from asking import Client


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Open dashboards of folders, which are closed after the test."""
    clients: list[Client] = []

    def open_one(*folders: Path, **more: object) -> Client:
        clients.append(Client(list(folders) or [tmp_path], **more))  # type: ignore[arg-type]
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()
