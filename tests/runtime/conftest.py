"""Lets the tests of this folder and of those below it import the modules beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
