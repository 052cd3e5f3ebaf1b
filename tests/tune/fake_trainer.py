"""Stands in for `redline train`: writes the records of a run whose curve follows from its settings, within a second."""

import json
import signal
import sys
import time
import tomllib
from pathlib import Path
from types import FrameType

ROWS = 20


def stop(_: int, __: FrameType | None) -> None:
    sys.exit(75)


def main(args: list[str]) -> int:
    """Train by pretending; `slope` decides how fast the return grows."""
    signal.signal(signal.SIGTERM, stop)
    flags = dict(zip(args[1::2], args[2::2], strict=False))
    settings = tomllib.loads(Path(flags["--config"]).read_text())
    slope = float(settings["optimizer"]["lr"]) if "optimizer" in settings else 0.001
    if slope > 0.9:
        sys.stderr.write("redline: the loss is not finite at step 7\n")
        return 1
    run = Path(flags["--log-dir"]) / "game" / "algo" / f"{time.time_ns()}-s{flags['--seed']}"
    run.mkdir(parents=True)
    budget_s = float(flags["--max-minutes"]) * 60
    with (run / "episodes.jsonl").open("a") as episodes:
        for place in range(1, ROWS + 1):
            time.sleep(0.02)
            row = {"schema": 1, "time_s": budget_s * place / ROWS, "steps": 100 * place, "role": "actor"}
            row["return"] = slope * 1000 * place + (int(flags["--seed"]) % 2)
            episodes.write(json.dumps(row) + "\n")
            episodes.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
