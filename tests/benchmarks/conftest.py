"""The scripts in benchmarks/ are no package: they import each other as neighbours, and so do their tests."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / "benchmarks"), str(HERE)]
