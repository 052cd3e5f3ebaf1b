"""Lets the tests of this folder import the fleets beside them, and the runs that the report's tests make."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "report")]
