"""Lets the tests of this folder import the runs made by hand in tests/report, in any import mode."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "report"))
