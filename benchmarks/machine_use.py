"""Whether the machine is free enough to be measured."""

import psutil

from redline.bench.other_work import MAX_BUSY_PERCENT


def refuse_busy_machine(script: str, *, allow_busy: bool) -> None:
    """Stop where others use the machine: that slows OpenMP teams which spin long far more than ours."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    if busy_percent > MAX_BUSY_PERCENT and not allow_busy:
        raise SystemExit(
            f"{script}: the machine is {busy_percent:.0f} % busy: wait, or use --allow-busy to try the script"
        )
