"""What the monitor itself took of the machine."""

from __future__ import annotations

from collections.abc import Sequence

from redline.records import Row
from redline.report.clean_samples import recordings
from redline.report.row_values import moment, number
from redline.report.run_files import RunFiles

SAME_STOP_S = 2.0  # by which the start that a monitor-stop tells may differ from that of the samples


def monitor_share(run: RunFiles) -> float | None:
    """Return the monitor's own CPU time ÷ (wall × cores) over all recordings: as told at their ends, or sampled."""
    told = [
        (share, wall_s, unix_s - wall_s)
        for row in run.events
        if row["event"] == "monitor-stop"
        and (share := number(row, "monitor_cpu_share")) is not None
        and (wall_s := number(row, "elapsed_s") or 0.0) > 0
        and (unix_s := moment(row)) is not None
    ]
    parts = [(share, wall_s) for share, wall_s, _ in told]
    for rows in recordings(run.hardware):
        begun_s = rows[0]["unix_s"] - (number(rows[0], "elapsed_s") or 0.0)
        sampled = _sampled_share(rows, monitored_cores(run))
        if sampled is not None and not any(abs(begun_s - start_s) < SAME_STOP_S for *_, start_s in told):
            parts.append(sampled)
    wall_s = sum(wall_s for _, wall_s in parts)
    return max(sum(share * wall_s for share, wall_s in parts), 0.0) / wall_s if wall_s > 0 else None


def _sampled_share(rows: Sequence[Row], cores: int | None) -> tuple[float, float] | None:
    """Return the monitor's share by its counter in the samples of a recording, and over how many seconds."""
    told = [row for row in rows if number(row, "monitor_cpu_s") is not None and number(row, "elapsed_s")]
    wall_s = float(told[-1]["elapsed_s"] - told[0]["elapsed_s"]) if len(told) > 1 else 0.0
    if not cores or wall_s <= 0:
        return None
    return float(told[-1]["monitor_cpu_s"] - told[0]["monitor_cpu_s"]) / (wall_s * cores), wall_s


def monitored_cores(run: RunFiles) -> int | None:
    """Return the cores of the machine, as the monitor tells them."""
    told = [number(row, "cores") for row in run.events if row["event"] == "monitor-start"]
    busy = run.hardware[-1].get("core_busy") if run.hardware else None
    return int(told[-1]) if told and told[-1] else len(busy) if isinstance(busy, list) and busy else None
