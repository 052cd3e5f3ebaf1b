"""The laptop script: memory is counted once and in full, and its goal is judged as stated."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

import laptop
import process_memory
from process_memory import MemoryUse

MB = 1024**2


# In a process that has loaded little: its share of a large library falls whenever another process loads that too.
RESERVING = """
import mmap, os
from process_memory import memory_use
MB = 1024**2
uses = [memory_use()]
descriptor = os.memfd_create("test", os.MFD_CLOEXEC)
os.ftruncate(descriptor, 64 * MB)
os.posix_fallocate(descriptor, 0, 48 * MB)
uses.append(memory_use())
mapping = mmap.mmap(descriptor, 64 * MB)
for at in range(32):  # in small pieces, which the process may keep when they are freed
    mapping[at * MB : (at + 1) * MB] = b"x" * MB
uses.append(memory_use())
print([[use.pss_bytes, use.unmapped_bytes] for use in uses])
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="anonymous files are Linux's")
def test_reserved_pages_count_whether_touched_or_not() -> None:
    scripts = Path(process_memory.__file__).parent
    done = subprocess.run([sys.executable, "-c", RESERVING], cwd=scripts, capture_output=True, text=True, check=True)
    before, reserved, touched = (MemoryUse(*use) for use in json.loads(done.stdout))
    assert reserved.unmapped_bytes - before.unmapped_bytes == pytest.approx(48 * MB, abs=2 * MB)
    assert touched.pss_bytes - before.pss_bytes >= 31 * MB
    assert touched.num_bytes - before.num_bytes == pytest.approx(48 * MB, abs=8 * MB)


@pytest.mark.parametrize(
    ("pss_bytes", "updates", "group_peak_bytes", "passed"),
    [(1.2e9, 900, None, True), (2.1e9, 900, None, False), (2.1e9, 900, 2_000_000_000, True), (1.2e9, 0, None, False)],
)
def test_a_laptop_must_train_within_its_memory(
    pss_bytes: float, updates: int, group_peak_bytes: int | None, passed: bool
) -> None:
    options = Namespace(env="pong", capacity=1_000_000, steps=4_000, prefetch=4, seed=1)
    summary = {
        "replay_transitions": 999_000,
        "replay_capacity_transitions": 1_000_000,
        "replay_bytes": 100_000_000,
        "steps": 1_004_000,
        "updates": updates,
        "samples_per_step": 8.0,
        "learning_steps_per_s": 100.0,
        "mean_return_100": -20.0,
        "time_s": 500.0,
    }
    samples = [{"time_s": 1.0, "pss_bytes": pss_bytes, "unmapped_bytes": 0.0}]
    assert laptop.measurement(options, summary, samples, [], group_peak_bytes).passed is passed
