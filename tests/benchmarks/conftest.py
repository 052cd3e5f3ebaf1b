"""The scripts in benchmarks/ are no package: they import each other as neighbours, and so do their tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
