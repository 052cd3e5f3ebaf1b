"""What must hold of a fleet that is over, whatever happened to it: each slot one run, each episode counted once."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "processes"))

from observed_run import Records

from redline.fleet.runner import run_folders

PROGRAM = (sys.executable, "-m", "redline.cli.main", "fleet")
SLOTS = ("cartpole-v1-ppo-s1", "cartpole-v1-ppo-s2", "cartpole-v1-ppo-s3")


def slots_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what `redline fleet status` tells of each slot."""
    said = subprocess.run([*PROGRAM, "status", str(folder), "--json"], capture_output=True, text=True, check=True)
    return {row["slot"]: row for row in json.loads(said.stdout)["slots"]}


def check_fleet(folder: Path, *, slots: Sequence[str], max_steps: int) -> dict[str, int]:
    """Check that all slots are done, each in one run to its last step; return their attempts."""
    found = slots_of(folder)
    assert list(found) == list(slots)
    for name, row in found.items():
        assert row["state"] == "done", row
        (run,) = run_folders(folder, name)
        assert Path(row["run"]) == run
        records = Records(run)
        assert records.saved_steps >= max_steps
        assert records.check_counts() > 0
        assert len(records.events("start")) == 1
    return {name: row["attempt"] for name, row in found.items()}
