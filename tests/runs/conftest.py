"""Runs to do damage to, and a file system small enough to fill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=1) as run:
        run.write_run_json({"config": {}})
        yield run


@pytest.fixture
def store(run: RunDirectory) -> Iterator[CheckpointStore]:
    with CheckpointStore(run) as store:
        yield store
