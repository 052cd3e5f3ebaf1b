"""Blocks that were freed are there again: the second of two equal updates takes no new pages from the system."""

import subprocess
import sys

FAULTS = """
import resource
import numpy as np
from redline.runtime.building import keep_freed_memory

if {keep}:
    assert keep_freed_memory()


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(7_000_000, np.uint8) for _ in range(8)]  # held together, as activations are, and freed together
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


faults()
print(min(faults() for _ in range(5)))
"""


def count_faults(*, keep: bool) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_kept_blocks_cost_no_page_faults() -> None:
    assert count_faults(keep=True) < 20
    assert count_faults(keep=False) > 1_000
