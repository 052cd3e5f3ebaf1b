"""Lets the tests of this folder import the memory beside them and the runs of tests/episodes and tests/report."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "episodes"), str(HERE.parent / "report")]
