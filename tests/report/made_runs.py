"""Run directories made by hand, with numbers that can be checked by hand."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from redline.jsonl import Row, encode_row
from redline.report.hardware_use import Samples
from redline.report.rows import RowFile, collect
from redline.report.run_files import RunFiles, load_runs

T0 = 1_700_000_000.0  # when they all begin


def sample(end_s: float, interval_s: float = 1.0, **more: Any) -> Row:
    """Return a sample that ends so many seconds after the start."""
    return {"unix_s": T0 + end_s, "elapsed_s": end_s, "interval_s": interval_s, **more}


def reading(time_s: float, **more: Any) -> Row:
    """Return a row of metrics.jsonl of a run that is never halted, at 100 steps/s and 10 updates/s."""
    counts = {"steps": 100 * time_s, "updates": 10 * time_s, "steps_per_s": 100.0, "updates_per_s": 10.0}
    return {"time_s": time_s, "unix_s": T0 + time_s, **counts, **more}


def episode(end_s: float, value: float, **more: Any) -> Row:
    """Return a row of episodes.jsonl."""
    where = {"time_s": end_s, "unix_s": T0 + end_s, "steps": 100 * end_s, "lane": 0, "role": "actor"}
    return {**where, "return": value, "length_steps": 10, **more}


def event(at_s: float, name: str, **more: Any) -> Row:
    """Return a row of events.jsonl."""
    return {"event": name, "unix_s": T0 + at_s, "time_s": at_s, "steps": 100 * at_s, **more}


def facts(**config: Any) -> Row:
    """Return a run.json."""
    known = {"env": {"id": "CartPole-v1"}, "batch_size": 32, "num_envs": 8, "topology": "inline", "seed": 1}
    return {
        "schema": 1,
        "algorithm": "dqn",
        "host": {"cpu_model": "Abacus", "usable_cores": 2},
        "config": {**known, "learner": {"threads": 1}, **config},
        "created_unix_s": T0,
    }


def write_run(folder: Path, run: Mapping[str, Any] | None = None, **rows: Iterable[Row]) -> Path:
    """Write a run directory with the files that are given."""
    folder.mkdir(parents=True, exist_ok=True)
    if run is not None:
        (folder / "run.json").write_text(json.dumps(run))
    for kind, lines in rows.items():
        (folder / f"{kind}.jsonl").write_bytes(b"".join(encode_row(row) for row in lines))
    return folder


def collected(rows: Iterable[Row], **more: Any) -> RowFile:
    """Return what is read of a hardware.jsonl with these samples."""
    return collect([(b"\n", row) for row in rows], "hardware", **more)


def samples_of(rows: Iterable[Row]) -> Samples:
    """Return samples by column."""
    return Samples(collected(rows).rows)


def made_run(folder: Path, run: Mapping[str, Any] | None = None, **rows: Iterable[Row]) -> RunFiles:
    """Write a run directory and read it back."""
    [files] = load_runs([write_run(folder, run, **rows)])
    return files
