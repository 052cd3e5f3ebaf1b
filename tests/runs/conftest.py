"""Runs to do damage to, and a file system small enough to fill."""

import subprocess
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount a tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
